"""The machine a figure was taken on, and a stack to take it from."""

import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotenant.doctor import cpu_model
from cotenant.stack import control
from cotenant.stack.home import StackHome, StackRecord
from cotenant.stack.options import StackOptions

Say = Callable[[str], None]


def describe() -> dict[str, Any]:
    return {
        "cpu_model": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def result(name: str, figures: dict[str, Any], rig: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """``rig`` is taken before the measurement: afterwards the load is our own."""
    return {"bench": name, "figures": figures, "settings": settings, "rig": rig}


@dataclass(frozen=True, slots=True)
class Running:
    home: StackHome
    record: StackRecord

    def token(self) -> str:
        return self.home.api_token.read_text().strip()

    def pids(self) -> tuple[int, ...]:
        """Every process of the stack, once; pods are not part of it."""
        found = [self.record.process.pid, *(service.process.pid for service in self.record.services)]
        if self.record.nats is not None:
            found.append(self.record.nats.pid)
        return tuple(dict.fromkeys(found))


@contextmanager
def own_stack(say: Say, *, processes: bool = False) -> Iterator[Running]:
    """A fresh stack in a temporary home: what runs on the machine already must not colour the figures."""
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as directory:
        home = StackHome(Path(directory) / "home")
        options = StackOptions(home=home.root, processes=processes, log_level="warning").checked()
        record = control.start_detached(options, 60.0, say)
        try:
            yield Running(home, record)
        finally:
            control.take_down(home, keep_state=False, grace_s=1.0, say=say)


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank: a value that was measured, not one between two."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]
