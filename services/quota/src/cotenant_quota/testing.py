"""A pod in one line, a bare number meaning CPU."""

from typing import Any

from cotenant_common.testing.quotas import Amount, amounts
from cotenant_quota.core.pods import PodFacts


def pod(uid: str, quota_name: str | None, request: Amount, *, assigned: bool = True, **more: Any) -> PodFacts:
    return PodFacts(
        uid=uid,
        namespace=more.pop("namespace", "jobs"),
        quota_label=quota_name,
        request=amounts(request),
        assigned=assigned,
        **more,
    )
