"""Kubernetes label selectors and node selector terms as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

FIELD_NAME: Final = "metadata.name"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression. ``values`` is empty for Exists and DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Kubernetes' rule: NotIn and DoesNotExist hold for an absent label, everything else needs it."""
        value = labels.get(self.key)
        if value is None:
            return self.operator in ("NotIn", "DoesNotExist")
        return self.accepts(value)

    def accepts(self, value: str) -> bool:
        """Whether a label that is present with ``value`` satisfies the expression."""
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return True
            case "Gt" | "Lt":
                return self._compares(value)
            case _:
                return False

    def _compares(self, value: str) -> bool:
        try:
            left, right = int(value), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return left > right if self.operator == "Gt" else left < right

    def __str__(self) -> str:
        match self.operator:
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case "Gt" | "Lt":
                return f"{self.key} {'>' if self.operator == 'Gt' else '<'} {','.join(self.values)}"
            case _ if len(self.values) == 1:
                return f"{self.key}{'=' if self.operator == 'In' else '!='}{self.values[0]}"
            case _:
                return f"{self.key} {self.operator} ({','.join(self.values)})"


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """All expressions and fields must hold; a term with neither matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def __str__(self) -> str:
        return " and ".join(str(each) for each in (*self.expressions, *self.fields)) or "(empty term)"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """An empty selector matches everything; an absent one (None where it is used) matches nothing."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(each.matches(labels) for each in self.requirements)

    def __str__(self) -> str:
        return ",".join(str(each) for each in self.requirements) or "any pod"


def parse_requirements(section: Sequence[Mapping[str, Any]] | None) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(str(each["key"]), str(each["operator"]), tuple(str(value) for value in each.get("values") or ()))
        for each in section or ()
    )


def parse_node_term(section: Mapping[str, Any]) -> NodeTerm:
    return NodeTerm(
        parse_requirements(section.get("matchExpressions")),
        parse_requirements(section.get("matchFields")),
    )


def parse_label_selector(section: Mapping[str, Any] | None) -> LabelSelector | None:
    if section is None:
        return None
    exact = tuple(
        Requirement(str(key), "In", (str(value),)) for key, value in sorted((section.get("matchLabels") or {}).items())
    )
    return LabelSelector(exact + parse_requirements(section.get("matchExpressions")))
