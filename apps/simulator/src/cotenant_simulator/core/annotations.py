"""``cotenant.io/sim-…``: what a manifest says of its own simulation."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, Final

from cotenant_common.model import labels, quantity, resources
from cotenant_common.model.quantity import QuantityError
from cotenant_simulator.core import durations
from cotenant_simulator.core.courses import TraceRef
from cotenant_simulator.core.scenario import Demand

_EXAMPLE: Final = '{"cpu": "6", "memory": "200Mi"}'
_PREFIX: Final = "cotenant.io/sim-"
_KNOWN: Final = (labels.SIM_USAGE, labels.SIM_DURATION, labels.SIM_GRACE, f"{_PREFIX}topology")
_TRACE_FIELDS: Final = ("trace", "column", "interval", "time", "unit", "offset", "repeat")
_MILLI: Final = 1_000


class AnnotationError(ValueError):
    """The value of one annotation cannot be used."""

    def __init__(self, annotation: str, message: str) -> None:
        super().__init__(f"{annotation}: {message}")
        self.annotation = annotation
        self.message = message


@dataclass(frozen=True, slots=True)
class SimUsage:
    """``fixed`` is what never changes; each of ``traced`` stands for one resource of a table instead."""

    fixed: Demand
    traced: Mapping[str, TraceRef]


def read_sim_usage(text: str) -> SimUsage:
    """``{"cpu": "6", "memory": {"trace": "file.csv", "column": "web", "interval": "5m"}}``. Raise AnnotationError."""
    try:
        written = json.loads(text, parse_float=str, parse_int=str)
    except ValueError as problem:
        raise _wrong(f"expected JSON such as {_EXAMPLE}, got {text[:80]!r}") from problem
    if not isinstance(written, dict):
        raise _wrong(f"expected JSON such as {_EXAMPLE}, got {text[:80]!r}")
    unknown = sorted(set(written) - {resources.CPU, resources.MEMORY})
    if unknown:
        raise _wrong(f"expected cpu and memory, got {', '.join(unknown)} besides")
    traced = {name: _trace(name, value) for name, value in written.items() if isinstance(value, dict)}
    fixed = {name: _amount(name, name, value) for name, value in written.items() if name not in traced}
    return SimUsage(Demand(fixed.get(resources.CPU), fixed.get(resources.MEMORY)), traced)


def _wrong(message: str) -> AnnotationError:
    return AnnotationError(labels.SIM_USAGE, message)


def _amount(name: str, field: str, value: Any) -> int:
    if not isinstance(value, str):
        raise _wrong(f"{field}: expected a quantity, or a trace such as {_trace_example()}, got {json.dumps(value)}")
    try:
        return resources.parse(name, value)
    except QuantityError as problem:
        raise _wrong(f"{field}: {problem}") from problem


def _trace_example() -> str:
    return '{"trace": "file.csv", "column": "web", "interval": "5m"}'


def _trace(name: str, written: Mapping[str, Any]) -> TraceRef:
    unknown = sorted(set(written) - set(_TRACE_FIELDS))
    if unknown:
        raise _wrong(f"{name}.{unknown[0]}: unknown field; known are {', '.join(_TRACE_FIELDS)}")
    repeat = written.get("repeat", False)
    if not isinstance(repeat, bool):
        raise _wrong(f"{name}.repeat: expected true or false, got {json.dumps(repeat)}")
    if ("interval" in written) == ("time" in written):
        raise _wrong(f"{name}: expected either interval (rows at equal steps) or time (a column of seconds)")
    interval_ms = _duration(name, "interval", written)
    if interval_ms == 0:
        raise _wrong(f"{name}.interval: expected a duration above zero")
    return TraceRef(
        file=_file(name, written),
        column=_text(name, "column", written),
        unit_of_one=_unit(name, written.get("unit", "1")),
        time=_text(name, "time", written) if "time" in written else None,
        interval_ms=interval_ms,
        offset_ms=_duration(name, "offset", written) or 0,
        repeat=repeat,
    )


def _text(name: str, field: str, written: Mapping[str, Any]) -> str:
    found = written.get(field)
    if not isinstance(found, str) or not found:
        raise _wrong(f"{name}.{field}: expected text, got {json.dumps(found)}")
    return found


def _file(name: str, written: Mapping[str, Any]) -> str:
    """A scenario that is handed on takes its tables along; it must not read what lies elsewhere on a reader's disk."""
    found = _text(name, "trace", written)
    path = PurePosixPath(found)
    if path.is_absolute() or ".." in path.parts or "://" in found:
        raise _wrong(f"{name}.trace: expected a file in or below the scenario's folder, got {found!r}")
    return found


def _duration(name: str, field: str, written: Mapping[str, Any]) -> int | None:
    if field not in written:
        return None
    try:
        return durations.parse_ms(written[field])
    except durations.DurationError as problem:
        raise _wrong(f"{name}.{field}: {problem}") from problem


def _unit(name: str, written: Any) -> Fraction:
    """What 1 in the column stands for, in milli-cores or bytes."""
    try:
        one = quantity.parse_quantity(written if isinstance(written, str) else "")
    except QuantityError as problem:
        raise _wrong(f"{name}.unit: {problem}") from problem
    if one <= 0:
        raise _wrong(f"{name}.unit: expected a quantity above zero, got {written!r}")
    return one * _MILLI if name == resources.CPU else one


def read_duration_ms(annotations: Mapping[str, str], name: str) -> int | None:
    """None when it is not there. Raise AnnotationError."""
    text = annotations.get(name)
    if text is None:
        return None
    try:
        return durations.parse_ms(text)
    except durations.DurationError as problem:
        raise AnnotationError(name, str(problem)) from problem


def check(annotations: Mapping[str, str]) -> None:
    """Raise AnnotationError for the first that cannot be read, or that nobody reads."""
    for name in annotations:
        if name.startswith(_PREFIX) and name not in _KNOWN:
            raise AnnotationError(name, f"unknown annotation; known are {', '.join(_KNOWN)}")
    if (usage := annotations.get(labels.SIM_USAGE)) is not None:
        read_sim_usage(usage)
    for name in (labels.SIM_DURATION, labels.SIM_GRACE):
        read_duration_ms(annotations, name)
