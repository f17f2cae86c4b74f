"""Counters of two instants turned into usage. What was not measured stays None; it is never 0."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

BE: Final = "be"
LS: Final = "ls"
SYSTEM: Final = "system"
GROUPS: Final = (LS, BE, SYSTEM)


@dataclass(frozen=True, slots=True)
class GroupCounters:
    """Running totals of one group. Run and wait come from the scheduler's own statistics per thread."""

    cpu_us: int | None = None
    memory_bytes: int | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    run_us: int | None = None
    wait_us: int | None = None
    slices: int | None = None
    cpu_pressure_some: float | None = None
    memory_pressure_some: float | None = None


@dataclass(frozen=True, slots=True)
class NodeCounters:
    """Running totals of one node, or of the agent's slice of it, at one instant of a monotonic clock."""

    at_us: int
    cpu_us: int | None = None
    memory_bytes: int | None = None
    cpu_pressure_some: float | None = None
    memory_pressure_some: float | None = None
    io_pressure_some: float | None = None
    pods: Mapping[str, GroupCounters] = field(default_factory=dict)
    groups: Mapping[str, GroupCounters] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupUsage:
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    throttled_ratio: float | None = None
    wait_ms_per_s: float | None = None
    wait_ms_per_slice: float | None = None
    slices: int | None = None
    cpu_pressure_some: float | None = None
    memory_pressure_some: float | None = None


@dataclass(frozen=True, slots=True)
class NodeUsage:
    interval_ms: int
    cpu_milli: int | None
    memory_bytes: int | None
    system_cpu_milli: int | None
    system_memory_bytes: int | None
    pods: Mapping[str, GroupUsage]
    groups: Mapping[str, GroupUsage]
    cpu_pressure_some: float | None = None
    memory_pressure_some: float | None = None
    io_pressure_some: float | None = None


def measure(before: NodeCounters | None, now: NodeCounters) -> NodeUsage:
    """Usage between two samples; without an earlier one there is memory but no cpu."""
    elapsed_us = now.at_us - before.at_us if before is not None else 0
    old_pods = before.pods if before is not None else {}
    old_groups = before.groups if before is not None else {}
    pods = {uid: group_usage(old_pods.get(uid), c, elapsed_us) for uid, c in now.pods.items()}
    groups = {name: group_usage(old_groups.get(name), c, elapsed_us) for name, c in now.groups.items()}
    cpu = _milli(_delta(before.cpu_us if before is not None else None, now.cpu_us), elapsed_us)
    # A group's total still holds what its ended pods used, so it cannot be off by a pod that came or went.
    parts = groups or pods
    return NodeUsage(
        interval_ms=elapsed_us // 1_000,
        cpu_milli=cpu,
        memory_bytes=now.memory_bytes,
        system_cpu_milli=_rest(cpu, (usage.cpu_milli for usage in parts.values())),
        system_memory_bytes=_rest(now.memory_bytes, (usage.memory_bytes for usage in parts.values())),
        pods=pods,
        groups=groups,
        cpu_pressure_some=now.cpu_pressure_some,
        memory_pressure_some=now.memory_pressure_some,
        io_pressure_some=now.io_pressure_some,
    )


def group_usage(before: GroupCounters | None, now: GroupCounters, elapsed_us: int) -> GroupUsage:
    old = before if before is not None else GroupCounters()
    periods = _delta(old.periods, now.periods)
    throttled = _delta(old.throttled_periods, now.throttled_periods)
    wait = _delta(old.wait_us, now.wait_us)
    slices = _delta(old.slices, now.slices)
    return GroupUsage(
        cpu_milli=_milli(_delta(old.cpu_us, now.cpu_us), elapsed_us),
        memory_bytes=now.memory_bytes,
        throttled_ratio=None if periods is None or throttled is None else (throttled / periods if periods else 0.0),
        wait_ms_per_s=None if wait is None or elapsed_us <= 0 else wait * 1_000 / elapsed_us,
        wait_ms_per_slice=None if wait is None or not slices else wait / 1_000 / slices,
        slices=slices,
        cpu_pressure_some=now.cpu_pressure_some,
        memory_pressure_some=now.memory_pressure_some,
    )


def _delta(before: int | None, now: int | None) -> int | None:
    """None as well when the counter went back: the group behind the name is another one now."""
    if before is None or now is None or now < before:
        return None
    return now - before


def _milli(used_us: int | None, elapsed_us: int) -> int | None:
    return None if used_us is None or elapsed_us <= 0 else used_us * 1_000 // elapsed_us


def _rest(total: int | None, parts: Iterable[int | None]) -> int | None:
    if total is None:
        return None
    rest = total
    for part in parts:
        if part is None:
            return None
        rest -= part
    return max(rest, 0)
