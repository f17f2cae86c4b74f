"""Kernel values of one pod from its class, requests and limits (as Koordinator's batch resource hook does)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cotenant_agent.core.usage import BE, LS, SYSTEM
from cotenant_common.model.qos import QosClass
from cotenant_common.model.resources import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY

UNLIMITED: Final = -1
_MIN_SHARES: Final = 2
_MAX_SHARES: Final = 262_144
_MIN_QUOTA_US: Final = 1_000
_QUOTA_US_PER_MILLI: Final = 100


@dataclass(frozen=True, slots=True)
class PodKnobs:
    shares: int
    quota_us: int
    memory_bytes: int
    cpus: str | None = None


def group_of(qos: QosClass) -> str:
    if qos is QosClass.BE:
        return BE
    return SYSTEM if qos is QosClass.SYSTEM else LS


def shares_of(cpu_milli: int) -> int:
    return min(max(cpu_milli * 1_024 // 1_000, _MIN_SHARES), _MAX_SHARES)


def quota_of(limit_milli: int | None, ratio: float = 1.0) -> int:
    """`ratio` above 1 is the node's cpu normalization: a faster core owes less time for the same limit."""
    if limit_milli is None or limit_milli <= 0:
        return UNLIMITED
    quota = max(limit_milli * _QUOTA_US_PER_MILLI, _MIN_QUOTA_US)
    if ratio <= 1.0:
        return quota
    # Thousandths keep the ceiling exact; a float division would turn 4/1.2 into 3 or 4 by luck.
    return -(-quota * 1_000 // round(ratio * 1_000))


def pod_knobs(
    qos: QosClass,
    requests: Mapping[str, int],
    limits: Mapping[str, int],
    *,
    be_capped_by_quota: bool = False,
    cpuset: str | None = None,
    ratio: float = 1.0,
) -> PodKnobs:
    """`limits` hold a name only when every container has it, so one unlimited container makes the pod unlimited."""
    cpu_names = (BATCH_CPU, MID_CPU, CPU) if qos is QosClass.BE else (CPU, MID_CPU, BATCH_CPU)
    memory_names = (BATCH_MEMORY, MID_MEMORY, MEMORY) if qos is QosClass.BE else (MEMORY, MID_MEMORY, BATCH_MEMORY)
    quota = quota_of(_first(limits, cpu_names), ratio)
    if qos is QosClass.BE and be_capped_by_quota:
        # v1 wants parent >= child and the parent's quota moves each second; the group's cap holds them all anyway.
        quota = UNLIMITED
    if cpuset and qos in {QosClass.LSR, QosClass.LSE}:
        quota = UNLIMITED  # bound cores are the limit; a quota beside them only adds throttling
    memory = _first(limits, memory_names)
    return PodKnobs(
        shares=shares_of(_first(requests, cpu_names) or 0),
        quota_us=quota,
        memory_bytes=UNLIMITED if memory is None or memory <= 0 else memory,
        cpus=cpuset or None,
    )


def be_memory_limit(capacity_bytes: int, non_be_requested_bytes: int, reserve_percent: int) -> int:
    """What best-effort pods may take together: never what others were promised, never the reserve.

    Without it one pod that has no limit of its own could balloon into the services' memory before eviction sees it.
    """
    promised = max(non_be_requested_bytes, capacity_bytes * reserve_percent // 100)
    return max(capacity_bytes - promised, capacity_bytes * reserve_percent // 100)


def _first(resources: Mapping[str, int], names: tuple[str, ...]) -> int | None:
    return next((resources[name] for name in names if name in resources), None)
