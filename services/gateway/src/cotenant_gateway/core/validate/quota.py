"""ElasticQuotas beside each other, judged by the rules that the quota service shares."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant_common.model import resources
from cotenant_common.model.quota import validate
from cotenant_common.model.quota.profile import parse_profile
from cotenant_common.model.quota.spec import Problem, QuotaSpec, parse_quota
from cotenant_gateway.core.validate.schema import Path, Report

Manifest = Mapping[str, Any]

_KEYED: Final = re.compile(r"(metadata)\.(labels|annotations)\[([^\]]+)\]")


@dataclass(frozen=True, slots=True)
class Charged:
    """What runs under a quota now."""

    used: Mapping[str, int] = field(default_factory=dict)
    pods: int = 0


NOTHING: Final = Charged()


def check_shape(manifest: Manifest, report: Report) -> None:
    """What can be said of one quota by itself."""
    _tell(parse_quota(manifest)[1], report)


def check_profile_shape(manifest: Manifest, report: Report) -> None:
    """Its quota is written by the quota service, and judged like any other then."""
    _tell(parse_profile(manifest)[1], report)


def check_quota(
    manifest: Manifest, quotas: Sequence[QuotaSpec], old: Manifest | None, report: Report, charged: Charged
) -> None:
    """``quotas`` hold this one and all others as they would stand; ``old`` is what it was."""
    new, problems = parse_quota(manifest)
    _tell(problems, report)
    if new is None:
        return
    twin = next((one for one in quotas if one.name == new.name and one.namespace != new.namespace), None)
    if twin is not None:
        message = f"namespace {twin.namespace} has a quota {new.name} already, and pods name quotas without a namespace"
        report.error(("metadata", "name"), message)
        return
    before = parse_quota(old)[0] if old is not None else None
    others = {one.name: one for one in quotas if one.name != new.name}
    existing = others | ({new.name: before} if before is not None else {})
    _tell(validate.check_apply(existing, new, used=charged.used, bound_pods=charged.pods), report)
    _warn_of_overuse(new, charged, report)


def _warn_of_overuse(new: QuotaSpec, charged: Charged, report: Report) -> None:
    for name, high in sorted(new.max.items()):
        used = charged.used.get(name, 0)
        if used > high:
            text = f"{resources.render(name, used)} are in use, more than max {resources.render(name, high)}"
            rest = "nothing new is admitted, and pods are evicted only for quotas that wait for their share"
            report.warn(("spec", "max", name), f"{text}: {rest}")


def check_delete(name: str, quotas: Sequence[QuotaSpec], pods: int) -> str | None:
    """Why the quota must stay, or None."""
    problems = validate.check_delete({one.name: one for one in quotas}, name, bound_pods=pods)
    return problems[0].message if problems else None


def _tell(problems: tuple[Problem, ...] | list[Problem], report: Report) -> None:
    for problem in problems:
        report.error(_place(problem.path), problem.message)


def _place(path: str) -> Path:
    """``metadata.labels[a.b/c]`` and ``spec.min.nvidia.com/gpu``: a key may hold dots itself."""
    keyed = _KEYED.match(path)
    return (keyed[1], keyed[2], keyed[3]) if keyed else tuple(path.split(".", 2))
