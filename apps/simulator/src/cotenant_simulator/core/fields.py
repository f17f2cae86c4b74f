"""Reading a mapping strictly: every field is known, every value is checked, every fault names its place."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from cotenant_common.model import resources
from cotenant_common.model.quantity import QuantityError
from cotenant_gateway.core.validate.schema import MAX_AMOUNT, did_you_mean, quote, show
from cotenant_gateway.core.yaml_source import Document, Path
from cotenant_simulator.core import durations
from cotenant_simulator.core.scenario import Demand
from cotenant_simulator.errors import ScenarioError

T = TypeVar("T")


class Place:
    """A value in the file, and the way to complain about it."""

    def __init__(self, source: str, document: Document, path: Path = (), value: Any = None) -> None:
        self.source = source
        self.document = document
        self.path = path
        self.value: Any = document.data if not path else value

    @property
    def line(self) -> int | None:
        return self.document.line_of(self.path)

    def error(self, message: str, *deeper: str | int) -> ScenarioError:
        path = (*self.path, *deeper)
        return ScenarioError(self.source, self.document.line_of(path), show(path), message)

    def at(self, key: str | int) -> "Place":
        inside: Any = self.value
        return Place(self.source, self.document, (*self.path, key), inside[key])

    def mapping(self) -> Mapping[str, Any]:
        if not isinstance(self.value, Mapping):
            raise self.error(f"expected a mapping, got {quote(self.value)}")
        return self.value

    def known(self, allowed: Iterable[str], required: Iterable[str] = ()) -> "Place":
        """Refuse fields that nobody reads, and the absence of those that must be there."""
        names = list(allowed)
        for name in self.mapping():
            if name not in names:
                hint = did_you_mean(name, names)
                raise self.error(f"unknown field{hint}{'' if hint else ';'} known are {', '.join(names)}", name)
        for name in required:
            if self.value.get(name) is None:
                raise self.error("required, and missing", name)
        return self

    def section(self, key: str) -> "Place | None":
        """None when it is absent or null."""
        return self.at(key) if self.mapping().get(key) is not None else None

    def items(self) -> list["Place"]:
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            raise self.error(f"expected a list, got {quote(self.value)}")
        return [self.at(index) for index in range(len(self.value))]

    def optional(self, key: str, read: Callable[["Place"], T]) -> T | None:
        return None if self.mapping().get(key) is None else read(self.at(key))

    def text(self) -> str:
        if isinstance(self.value, bool) or not isinstance(self.value, str | int) or self.value == "":
            raise self.error(f"expected text, got {quote(self.value)}")
        return str(self.value)

    def integer(self, low: int = 0) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int) or self.value < low:
            raise self.error(f"expected a whole number from {low}, got {quote(self.value)}")
        return self.value

    def number(self) -> float:
        try:
            found = float(self.text())
        except ValueError:
            raise self.error(f"expected a number, got {quote(self.value)}") from None
        if not math.isfinite(found):
            raise self.error(f"expected a finite number, got {quote(self.value)}")
        if found < 0:
            raise self.error(f"expected a number that is not negative, got {quote(self.value)}")
        return found

    def duration_ms(self) -> int:
        try:
            return durations.parse_ms(self.text())
        except durations.DurationError as problem:
            raise self.error(str(problem)) from None

    def one_of(self, choices: Iterable[str]) -> str:
        listed = list(choices)
        found = self.text()
        if found not in listed:
            raise self.error(f"expected {', '.join(listed)}, got {quote(self.value)}{did_you_mean(found, listed)}")
        return found

    def quantity(self, resource: str) -> int:
        try:
            found = resources.parse(resource, self.text())
        except QuantityError as problem:
            raise self.error(str(problem)) from None
        if found > MAX_AMOUNT:
            raise self.error(f"expected at most {resources.render(resource, MAX_AMOUNT)}, got {quote(self.value)}")
        return found

    def demand(self) -> Demand:
        self.known((resources.CPU, resources.MEMORY))
        return Demand(
            self.optional(resources.CPU, lambda place: place.quantity(resources.CPU)),
            self.optional(resources.MEMORY, lambda place: place.quantity(resources.MEMORY)),
        )

    def pod_key(self) -> str:
        """``namespace/name``; a bare name is in ``default``."""
        found = self.text()
        return _pod_key(found) if found.count("/") <= 1 and all(found.split("/")) else self._bad_pod_key()

    def _bad_pod_key(self) -> str:
        raise self.error(f"expected namespace/name, got {quote(self.value)}")


def _pod_key(text: str) -> str:
    return text if "/" in text else f"default/{text}"
