"""A strict schema: every field is known, and what happens to it is decided and explained beside its type."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final, Protocol

from cotenant_common.model import resources
from cotenant_common.model.quantity import QuantityError, parse_quantity
from cotenant_gateway.core.strict_json import is_unicode

Path = tuple[str | int, ...]

MAX_ERRORS: Final = 100
MAX_AMOUNT: Final = 2**53
"""9 PB, or 9·10¹² cores: beyond it sums leave 64 bits, and readers in JavaScript lose digits."""
_PLAIN_KEY: Final = re.compile(r"^[A-Za-z][A-Za-z0-9_-]*\Z")


class Decision(StrEnum):
    USED = "used"
    KEPT = "kept for readers"
    IGNORED = "ignored with a warning"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Problem:
    path: Path
    message: str

    def __str__(self) -> str:
        return f"{show(self.path)}: {self.message}" if self.path else self.message


@dataclass(slots=True)
class Report:
    """What validation found; one instance per document."""

    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Nobody reads on, and finding similar names for each of 100,000 wrong ones would hold up everybody."""
        return len(self.errors) >= MAX_ERRORS

    def error(self, path: Path, message: str) -> None:
        self.errors.append(Problem(path, message))

    def warn(self, path: Path, message: str) -> None:
        self.warnings.append(Problem(path, message))


def show(path: Path) -> str:
    """``spec.containers[0].resources.limits.cpu``; keys that are no plain word in brackets and quotes."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.match(part):
            text += f".{part}" if text else part
        else:
            text += f"[{part!r}]"
    return text


def quote(value: Any) -> str:
    """A value for a message, cut to a readable length."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return repr(value)[:80]


class Type(Protocol):
    def check(self, value: Any, path: Path, report: Report) -> None: ...

    def describe(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Text:
    """``form`` is the pattern, ``what`` names it for people."""

    form: re.Pattern[str] | None = None
    what: str = "a string"
    max_length: int = 65_536

    def check(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, str):
            hint = f'; quote it: "{value}"' if isinstance(value, int) and not isinstance(value, bool) else ""
            report.error(path, f"expected {self.what}, got {quote(value)}{hint}")
        elif len(value) > self.max_length:
            report.error(path, f"expected at most {self.max_length} characters, got {len(value)}")
        elif "\0" in value or not is_unicode(value) or (self.form and not self.form.match(value)):
            report.error(path, f"expected {self.what}, got {quote(value)}")

    def describe(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class Integer:
    low: int = 0
    high: int = 2**31 - 1

    def check(self, value: Any, path: Path, report: Report) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            report.error(path, f"expected a whole number, got {quote(value)}")
        elif not self.low <= value <= self.high:
            report.error(path, f"expected {self.low} to {self.high}, got {value}")

    def describe(self) -> str:
        return f"whole number, {self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class NumberOrName:
    what: str
    low: int
    high: int

    def check(self, value: Any, path: Path, report: Report) -> None:
        if isinstance(value, int) and not isinstance(value, bool):
            good = self.low <= value <= self.high
        else:
            good = isinstance(value, str) and bool(value) and "\0" not in value and is_unicode(value)
        if not good:
            report.error(path, f"expected {self.what}, got {quote(value)}")

    def describe(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class Flag:
    def check(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, bool):
            report.error(path, f"expected true or false, got {quote(value)}")

    def describe(self) -> str:
        return "true or false"


@dataclass(frozen=True, slots=True)
class OneOf:
    values: tuple[str, ...]

    def check(self, value: Any, path: Path, report: Report) -> None:
        if value not in self.values:
            hint = did_you_mean(value, self.values)
            report.error(path, f"expected {' or '.join(self.values)}, got {quote(value)}{hint}")

    def describe(self) -> str:
        return ", ".join(self.values)


@dataclass(frozen=True, slots=True)
class Wish:
    """One of several words, of which one is only a preference: whoever relies on it should hear that."""

    values: tuple[str, ...]
    soft: str

    def check(self, value: Any, path: Path, report: Report) -> None:
        OneOf(self.values).check(value, path, report)
        if value == self.soft:
            report.warn(path, f"{self.soft} is a preference among nodes that fit, not a promise")

    def describe(self) -> str:
        return ", ".join(self.values)


@dataclass(frozen=True, slots=True)
class Only:
    """A value that changes nothing here is fine; every other would promise what this runtime does not do."""

    allowed: tuple[Any, ...]
    why: str

    def check(self, value: Any, path: Path, report: Report) -> None:
        if value not in self.allowed or isinstance(value, bool) != isinstance(self.allowed[0], bool):
            allowed = " or ".join(quote(a) for a in self.allowed)
            report.error(path, f"expected {allowed}, got {quote(value)}: {self.why}")

    def describe(self) -> str:
        return f"only {', '.join(quote(a) for a in self.allowed)}"


@dataclass(frozen=True, slots=True)
class Always:
    """A flag that has one value here whatever is written; the other is accepted with a warning."""

    real: bool
    why: str

    def check(self, value: Any, path: Path, report: Report) -> None:
        Flag().check(value, path, report)
        if value is (not self.real):
            report.warn(path, f"ignored: {self.why}")

    def describe(self) -> str:
        return f"always {quote(self.real)}"


@dataclass(frozen=True, slots=True)
class Count:
    """An integer or a percentage, as ``maxUnavailable`` is."""

    def check(self, value: Any, path: Path, report: Report) -> None:
        if isinstance(value, int) and not isinstance(value, bool):
            if value < 0:
                report.error(path, f"expected a number that is not negative, got {value}")
        elif not (isinstance(value, str) and re.fullmatch(r"[0-9]{1,3}%", value)):
            report.error(path, f"expected a whole number or a percentage such as 25%, got {quote(value)}")

    def describe(self) -> str:
        return "whole number or percentage"


@dataclass(frozen=True, slots=True)
class ResourceList:
    """Quantities by resource name, exact."""

    most: int = MAX_AMOUNT

    def check(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, Mapping):
            report.error(path, f"expected quantities by resource name, got {quote(value)}")
            return
        for name, amount in value.items():
            self._check_one(name, amount, (*path, name), report)

    def _check_one(self, name: str, amount: Any, path: Path, report: Report) -> None:
        if not isinstance(amount, str | int) or isinstance(amount, bool):
            report.error(path, f"expected a quantity such as 500m or 1Gi, got {quote(amount)}")
            return
        try:
            exact = parse_quantity(amount)
            whole = resources.parse(name, amount)
        except QuantityError as problem:
            report.error(path, str(problem))
            return
        if whole > self.most:
            report.error(path, f"expected at most {resources.render(name, self.most)}, got {amount}")
            return
        if name not in KNOWN_RESOURCES and "/" not in name and not name.startswith("hugepages-"):
            report.error(path, f"unknown resource{did_you_mean(name, KNOWN_RESOURCES)}; extended ones have a domain")
        elif name.endswith("memory") and exact.denominator != 1 and str(amount).endswith("m"):
            report.warn(path, f"{amount} of memory is {float(exact):g} bytes: 'm' means a thousandth; Mi was meant?")
        elif name.endswith("memory") and 0 < exact < 1024:
            report.warn(path, f"{amount} of memory is less than 1 KiB; a unit such as Mi is missing?")
        elif name != resources.CPU and exact.denominator != 1:
            report.warn(path, f"{amount} is rounded up to {resources.parse(name, amount)}")

    def describe(self) -> str:
        return "quantities by resource name"


KNOWN_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", "pods", "storage")


@dataclass(frozen=True, slots=True)
class Words:
    """A mapping of strings; ``key`` and ``value`` may restrict both."""

    key: Text = field(default_factory=Text)
    value: Text = field(default_factory=Text)

    def check(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, Mapping):
            report.error(path, f"expected a mapping of strings, got {quote(value)}")
            return
        for name, entry in value.items():
            self.key.check(name, (*path, name), report)
            if entry is not None:
                self.value.check(entry, (*path, name), report)

    def describe(self) -> str:
        return "strings by name"


@dataclass(frozen=True, slots=True)
class Listing:
    """``unique`` names the field that must differ between items."""

    item: Type
    unique: str | None = None
    least: int = 0

    def check(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, list):
            report.error(path, f"expected a list, got {quote(value)}")
            return
        if len(value) < self.least:
            report.error(path, f"expected at least {self.least} item{'s' if self.least > 1 else ''}, got {len(value)}")
        for at, entry in enumerate(value):
            if report.full:
                return
            self.item.check(entry, (*path, at), report)
        if self.unique:
            self._check_unique(value, self.unique, path, report)

    @staticmethod
    def _check_unique(items: Sequence[Any], key: str, path: Path, report: Report) -> None:
        first: dict[Any, int] = {}
        for at, entry in enumerate(items):
            name = entry.get(key) if isinstance(entry, Mapping) else None
            if isinstance(name, str) and name in first:
                report.error((*path, at, key), f"{name!r} is already the {key} of item {first[name]}")
            elif isinstance(name, str):
                first[name] = at

    def describe(self) -> str:
        return "list"


@dataclass(frozen=True, slots=True)
class Anything:
    """Checked elsewhere, or not ours to check."""

    what: str = "any value"

    def check(self, value: Any, path: Path, report: Report) -> None:
        """Accept."""

    def describe(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: Type
    decision: Decision = Decision.USED
    why: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """A mapping with known fields."""

    fields: tuple[Field, ...]
    what: str = "mapping"

    def check(self, value: Any, path: Path, report: Report) -> None:
        if not isinstance(value, Mapping):
            report.error(path, f"expected a {self.what}, got {quote(value)}")
            return
        known = {f.name: f for f in self.fields}
        for name, entry in value.items():
            if report.full:
                return
            here = (*path, name)
            if name not in known:
                report.error(here, f"unknown field{did_you_mean(name, known)}")
            elif entry is not None:
                _apply(known[name], entry, here, report)
        for f in self.fields:
            if f.required and value.get(f.name) is None:
                report.error((*path, f.name), f"required: {f.why or f.type.describe()}")

    def describe(self) -> str:
        return self.what


def _apply(f: Field, value: Any, path: Path, report: Report) -> None:
    if f.decision is Decision.REFUSED:
        if value in ([], {}):
            return  # nothing is asked for; exports are full of empty lists
        report.error(path, f"not supported: {f.why}")
        return
    before = len(report.errors)
    f.type.check(value, path, report)
    if f.decision is Decision.IGNORED and len(report.errors) == before:
        report.warn(path, f"ignored: {f.why}")


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    close = get_close_matches(str(name)[:80], list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def used(name: str, kind: Type, *, required: bool = False, why: str = "") -> Field:
    return Field(name, kind, Decision.USED, why, required)


def kept(name: str, kind: Type, why: str = "") -> Field:
    return Field(name, kind, Decision.KEPT, why)


def ignored(names: str, why: str, kind: Type | None = None) -> tuple[Field, ...]:
    return tuple(Field(name, kind or Anything(), Decision.IGNORED, why) for name in names.split())


def refused(names: str, why: str) -> tuple[Field, ...]:
    return tuple(Field(name, Anything(), Decision.REFUSED, why) for name in names.split())


def prune(value: Any) -> Any:
    """Without nulls: Kubernetes reads null as unset, so two spellings of one object become equal."""
    if isinstance(value, Mapping):
        return {key: prune(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [prune(entry) for entry in value]
    return value
