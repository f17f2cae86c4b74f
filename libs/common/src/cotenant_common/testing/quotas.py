"""A quota in one line, a bare number meaning CPU."""

from collections.abc import Mapping
from typing import Any

from cotenant_common.model.quota.spec import ROOT, QuotaSpec

Amount = int | Mapping[str, int]


def quota(
    name: str,
    *,
    min: Amount = 0,  # noqa: A002 - the field's own words
    max: Amount = 10**9,  # noqa: A002
    parent: str = ROOT,
    **more: Any,
) -> QuotaSpec:
    low, high = amounts(min), amounts(max)
    weight = amounts(more.pop("weight", high))
    return QuotaSpec(
        name=name,
        namespace=more.pop("namespace", "default"),
        min=low,
        max=high,
        shared_weight=weight,
        parent=parent,
        **more,
    )


def amounts(value: Amount) -> dict[str, int]:
    return dict(value) if isinstance(value, Mapping) else {"cpu": value}
