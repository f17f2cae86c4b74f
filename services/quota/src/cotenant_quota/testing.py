"""Builders for tests: a quota or a pod in one line, a bare number meaning CPU."""

from collections.abc import Mapping
from typing import Any

from cotenant_quota.core.book import PodFacts
from cotenant_quota.core.spec import ROOT, QuotaSpec

Amount = int | Mapping[str, int]


def quota(
    name: str,
    *,
    min: Amount = 0,  # noqa: A002 - the field's own words
    max: Amount = 10**9,  # noqa: A002
    parent: str = ROOT,
    **more: Any,
) -> QuotaSpec:
    low, high = _amounts(min), _amounts(max)
    weight = _amounts(more.pop("weight", high))
    return QuotaSpec(
        name=name,
        namespace=more.pop("namespace", "default"),
        min=low,
        max=high,
        shared_weight=weight,
        parent=parent,
        **more,
    )


def _amounts(value: Amount) -> dict[str, int]:
    return dict(value) if isinstance(value, Mapping) else {"cpu": value}


def pod(uid: str, quota_name: str | None, request: Amount, *, assigned: bool = True, **more: Any) -> PodFacts:
    return PodFacts(
        uid=uid,
        namespace=more.pop("namespace", "jobs"),
        quota_label=quota_name,
        request=_amounts(request),
        assigned=assigned,
        **more,
    )
