"""Texts that users type: durations, kinds, names."""

import re
from collections.abc import Mapping
from typing import Final

from cotenant.errors import BadInputError

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_PLAIN_SECONDS: Final = re.compile(r"\d{1,12}(?:\.\d+)?", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

# Kind → other names for it; the plural and the lower case form need no entry.
_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": ("po",),
    "Deployment": ("deploy",),
    "Job": (),
    "Node": ("no",),
    "ElasticQuota": ("eq", "quota", "quotas"),
    "ElasticQuotaProfile": ("eqp", "quotaprofile", "quotaprofiles"),
    "PodDisruptionBudget": ("pdb",),
    "PriorityClass": ("pc", "priorityclasses"),
    "ConfigMap": ("cm",),
    "ClusterColocationProfile": ("ccp", "profile", "profiles"),
    "Namespace": ("ns",),
}
CLUSTER_SCOPED: Final = frozenset({"Node", "PriorityClass", "ClusterColocationProfile", "Namespace"})


def duration_s(text: str) -> float:
    """``1h30m``, ``90s``, ``500ms`` or plain seconds."""
    if _PLAIN_SECONDS.fullmatch(text):
        return float(text)
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise BadInputError(f"expected a duration such as 90s, 10m or 1h30m, got {text!r}")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def duration_ms(option: str, text: str) -> int:
    """As scenarios spell it, so never without a unit. Raise BadInputError that names the option."""
    from cotenant_simulator.core import durations  # noqa: PLC0415 - not needed by most commands

    try:
        return durations.parse_ms(text)
    except durations.DurationError as error:
        raise BadInputError(f"{option}: {error}") from error


def kind(text: str) -> str:
    """The object kind that a user means: ``pods``, ``pod``, ``po`` and ``Pod`` are one."""
    wanted = text.lower()
    for name, others in _ALIASES.items():
        if wanted in (name.lower(), name.lower() + "s", *others):
            return name
    known = ", ".join(name.lower() for name in _ALIASES)
    raise BadInputError(f"no kind {text!r}; known: {known}")


def kind_and_name(text: str, default_kind: str = "Pod") -> tuple[str, str]:
    """``job/sort`` or a bare pod name."""
    prefix, slash, name = text.rpartition("/")
    if not name:
        raise BadInputError(f"expected NAME or KIND/NAME, got {text!r}")
    return (kind(prefix) if slash else default_kind), name


def namespace_for(kind_name: str, namespace: str) -> str | None:
    return None if kind_name in CLUSTER_SCOPED else namespace
