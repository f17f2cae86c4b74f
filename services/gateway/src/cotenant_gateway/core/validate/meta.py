"""Names, labels, annotations and selectors: what every kind shares."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cotenant_common.model.ids import is_dns_subdomain
from cotenant_gateway.core.validate.schema import (
    Decision,
    Field,
    Listing,
    OneOf,
    Path,
    Report,
    Shape,
    Text,
    Words,
    ignored,
    quote,
    used,
)

_LABEL_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PREFIX: Final = r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
LABEL_KEY: Final = Text(
    re.compile(rf"^{_PREFIX}{_LABEL_NAME}\Z", re.ASCII),
    "a key of letters, digits, '-', '_' and '.', with an optional domain before a '/'",
    317,
)
LABEL_VALUE: Final = Text(
    re.compile(rf"^({_LABEL_NAME})?\Z", re.ASCII),
    "a label value of at most 63 letters, digits, '-', '_' and '.', that begins and ends with a letter or digit",
    63,
)
LABELS: Final = Words(LABEL_KEY, LABEL_VALUE)
ANNOTATIONS: Final = Words(LABEL_KEY, Text(max_length=262_144))
DNS_LABEL: Final = Text(
    re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z", re.ASCII),
    "a name of at most 63 lower-case letters, digits and '-'",
    63,
)
_SERVER_FIELDS: Final = "written by the server of the cluster that this came from"
METADATA: Final = Shape(
    (
        used("name", Text(), required=True),
        used("namespace", DNS_LABEL),
        used("labels", LABELS),
        used("annotations", ANNOTATIONS),
        *ignored(
            "uid resourceVersion generation creationTimestamp deletionTimestamp deletionGracePeriodSeconds "
            "managedFields selfLink",
            _SERVER_FIELDS,
        ),
        *ignored("ownerReferences finalizers", "controllers of this system set owners themselves"),
        Field("generateName", Text(), Decision.REFUSED, "state metadata.name; re-applying must find the same object"),
    ),
    "metadata",
)
TEMPLATE_METADATA: Final = Shape(
    (
        used("labels", LABELS),
        used("annotations", ANNOTATIONS),
        *ignored("name namespace", "pods of a controller are named <name>-<ordinal> in its namespace"),
        *ignored("creationTimestamp", _SERVER_FIELDS),
    ),
    "metadata",
)
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


@dataclass(frozen=True, slots=True)
class Expression(Shape):
    """Which values an expression takes depends on its operator; a wrong number would never match, silently."""

    def check(self, value: Any, path: Path, report: Report) -> None:
        before = len(report.errors)
        Shape.check(self, value, path, report)
        if len(report.errors) > before:
            return
        operator: str = value["operator"]
        values: list[str] = value.get("values") or []
        match operator:
            case "In" | "NotIn" if not values:
                report.error((*path, "values"), f"required with {operator}: at least one")
            case "Exists" | "DoesNotExist" if values:
                report.error((*path, "values"), f"{operator} takes no values")
            case "Gt" | "Lt" if len(values) != 1 or not _WHOLE.match(values[0]):
                report.error((*path, "values"), f"{operator} takes exactly one whole number")


_WHOLE: Final = re.compile(r"^-?[0-9]{1,18}\Z", re.ASCII)
_EXPRESSION: Final = Expression(
    (
        used("key", LABEL_KEY, required=True),
        used("operator", OneOf(_OPERATORS), required=True),
        used("values", Listing(LABEL_VALUE)),
    ),
    "selector expression",
)
LABEL_SELECTOR: Final = Shape(
    (used("matchLabels", LABELS), used("matchExpressions", Listing(_EXPRESSION))), "label selector"
)


def check_name(metadata: Any, path: Path, report: Report) -> None:
    """RFC 1123 subdomain; stricter than what a key of the bus needs."""
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if isinstance(name, str) and not is_dns_subdomain(name):
        report.error(
            (*path, "name"),
            f"expected at most 253 lower-case letters, digits, '-' and '.', that begin and end with a letter or digit, "
            f"got {quote(name)}",
        )


def selector_matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A Kubernetes LabelSelector; None and an empty one match everything."""
    if not selector:
        return True
    wanted: Mapping[str, str] = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _expression_matches(expression, labels) for expression in selector.get("matchExpressions") or ()
    )


def _expression_matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    values = expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None


def parse_selector(text: str) -> Mapping[str, Any]:
    """``app=web,tier!=db,gpu,!old`` as a LabelSelector. Raise ValueError for anything else."""
    expressions: list[dict[str, Any]] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        found = re.fullmatch(r"(!?)([^=!\s]+)(?:\s*(==|=|!=)\s*(\S*))?", part)
        if found is None or (found[1] and found[3]):
            raise ValueError(f"expected key=value, key!=value, key or !key, got {part!r}")
        if found[3]:
            operator = "NotIn" if found[3] == "!=" else "In"
            expressions.append({"key": found[2], "operator": operator, "values": [found[4]]})
        else:
            expressions.append({"key": found[2], "operator": "DoesNotExist" if found[1] else "Exists"})
    return {"matchExpressions": expressions}
