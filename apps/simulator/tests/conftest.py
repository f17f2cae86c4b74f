"""Small scenarios for tests: say what matters, get the rest filled in."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from cotenant_simulator import Outcome, parse, run


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
