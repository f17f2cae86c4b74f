"""Small scenarios for tests: say what matters, get the rest filled in."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from cotenant_simulator import Outcome, parse, run
from cotenant_simulator.core.series import Point, Series
from cotenant_simulator.core.summary import CLASSES, Integrals, PodFacts, summarise
from cotenant_simulator.trials import Result


def _text(*, objects: Any = (), timeline: Any = (), expect: Any = (), **spec: Any) -> str:
    filled = {"duration": "30s", **spec, "objects": list(objects), "timeline": list(timeline), "expect": list(expect)}
    whole = {"apiVersion": "cotenant.io/v1", "kind": "Scenario", "metadata": {"name": "test"}, "spec": filled}
    return yaml.safe_dump(whole, sort_keys=False)


@pytest.fixture
def node() -> Callable[..., dict[str, Any]]:
    def build(name: str, cpu: str = "8", memory: str = "32Gi", **more: str) -> dict[str, Any]:
        capacity = {"cpu": cpu, "memory": memory, **more}
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"capacity": capacity}}

    return build


@pytest.fixture
def simulated() -> Callable[..., Outcome]:
    def build(**spec: Any) -> Outcome:
        return run(parse(_text(**spec), "test.yaml"))

    return build


@pytest.fixture
def result() -> Callable[..., Result]:
    """A run that nobody ran: one expectation, one figure, three points."""

    def build(seed: int, *, pressure: float | None = None, ok: bool = True, **named: Any) -> Result:
        summary = summarise(Integrals(), (), {}, ())
        summary["pressure_minutes"] = pressure
        expectation = {"at": "end", "pod": "default/a", "phase": "Running", "ok": ok, "got": {"phase": "?"}, "line": 7}
        names = {"source": "s.yaml", "scenario": "story", "arm": "none", **named}
        return Result(
            seed=seed, virtual_ms=30_000, summary=summary, expectations=[expectation], errors_logged=0,
            series=_series(), **names,
        )  # fmt: skip

    return build


def _series() -> Series:
    used = {"cpu": dict.fromkeys(CLASSES, 500.0), "memory": {**dict.fromkeys(CLASSES, 10.0), "system": None}}
    asked = {"cpu": {"prod": 1_000}, "memory": {"prod": 40}}
    points = [
        Point(t_ms, 1, 1, {"cpu": 4_000, "memory": 100}, used, asked, 1, {"team": 500}, {"other": 500})
        for t_ms in (5_000, 15_000, 25_000)
    ]
    series = Series(10_000, points)
    queued = {"t_ms": 1_000, "type": "pod.queued", "object": "Pod/default/a", "reason": None, "data": {}}
    evicted = {**queued, "t_ms": 20_000, "type": "pod.evicted", "reason": "NodeHot"}
    series.finish([queued, evicted], {"default/a": PodFacts("batch")})
    return series
