"""The only place that opens a cgroup file for writing, and the only path from a wish to a knob."""

import errno
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from cotenant_agent.cgroup.files import (
    KNOB_FILES,
    MIN_QUOTA_US,
    UNLIMITED,
    Knob,
    KnobValue,
    Version,
)
from cotenant_agent.cgroup.journal import KnobJournal
from cotenant_agent.cgroup.tree import (
    CgroupTree,
    GroupMissingError,
    KnobRefusedError,
    KnobUnsupportedError,
    is_within,
    parent_of,
)
from cotenant_agent.core.cpuset import format_cpuset, parse_cpuset

_FORCE_READ_MS: Final = 60_000
_FIRST_RETRY_MS: Final = 10_000
_LAST_RETRY_MS: Final = 600_000
_STRIKES: Final = 3
_UNSUPPORTED_ERRNOS: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})
# Knobs for which the kernel holds a parent to its children; numbers and sets can be loosened ahead of the rest.
_LEVELED: Final = frozenset({Knob.CPU_QUOTA, Knob.CPUSET_CPUS, Knob.MEMORY_MIN, Knob.MEMORY_LOW})


def write_file(path: Path, text: str) -> None:
    """One write(2): the kernel parses a cgroup file per call. O_TRUNC would be harmless but v1 ignores it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


class Outcome(StrEnum):
    WRITTEN = "written"
    UNCHANGED = "unchanged"
    OBSERVED = "observed"
    REFUSED = "refused"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"
    GROUP_GONE = "group_gone"


@dataclass(frozen=True, slots=True)
class KnobChange:
    group: str
    knob: Knob
    value: KnobValue
    reason: str


@dataclass(frozen=True, slots=True)
class KnobResult:
    change: KnobChange
    outcome: Outcome
    before: KnobValue | None = None
    message: str = ""


@dataclass(slots=True)
class _Retry:
    next_ms: int
    delay_ms: int


@dataclass(slots=True)
class _KnobHealth:
    strikes: int = 0
    worked: bool = False
    retry: _Retry | None = None


@dataclass(frozen=True, slots=True)
class RestoreReport:
    written_back: int
    removed_with_group: int
    differences: tuple[str, ...] = ()


@dataclass(slots=True)
class KnobWriter:
    """Merged wishes in, the fewest writes out. In observe mode nothing is written and every change is reported."""

    tree: CgroupTree
    journal: KnobJournal = field(default_factory=KnobJournal)
    observe: bool = False
    counts: Counter[Outcome] = field(default_factory=Counter)
    _known: dict[tuple[str, Knob], tuple[KnobValue, int]] = field(default_factory=dict)
    _retries: dict[tuple[str, Knob], _Retry] = field(default_factory=dict)
    _health: dict[Knob, _KnobHealth] = field(default_factory=dict)

    def apply(self, changes: Iterable[KnobChange], now_ms: int) -> list[KnobResult]:
        """Write a set of changes so that a parent never holds less than its children at any moment.

        Down the tree first, loosening only; then up the tree with the exact values.
        """
        ordered = sorted(changes, key=lambda change: change.group.count("/"))
        for change in ordered:
            if change.knob in _LEVELED:
                self._loosen(change, now_ms)
        return [self.write(change, now_ms) for change in reversed(ordered)]

    def write(self, change: KnobChange, now_ms: int) -> KnobResult:
        result = self._write(change, now_ms)
        self.counts[result.outcome] += 1
        return result

    def forget(self, group: str) -> None:
        """Call when a group was removed: its uid will not return, and the journal need not restore it."""
        for known in [key for key in self._known if is_within(key[0], group)]:
            del self._known[known]
        for failed in [key for key in self._retries if is_within(key[0], group)]:
            del self._retries[failed]
        self.journal.forget(group)

    def unsupported(self, now_ms: int) -> tuple[Knob, ...]:
        return tuple(knob for knob in Knob if not self.tree.supports(knob) or self._resting(knob, now_ms))

    def _resting(self, knob: Knob, now_ms: int) -> bool:
        health = self._health.get(knob)
        return health is not None and health.retry is not None and now_ms < health.retry.next_ms

    def _holds(self, change: KnobChange, now_ms: int) -> bool:
        """Written by us so lately that the file need not be read again."""
        known = self._known.get((change.group, change.knob))
        return known is not None and known[0] == change.value and now_ms - known[1] < _FORCE_READ_MS

    def _loosen(self, change: KnobChange, now_ms: int) -> None:
        if self._holds(change, now_ms):
            return
        old = self.tree.read(change.group, change.knob)
        if old is None:
            return
        merged = _looser(change.knob, old, change.value)
        if merged is not None:
            self.write(KnobChange(change.group, change.knob, merged, change.reason), now_ms)

    def _write(self, change: KnobChange, now_ms: int) -> KnobResult:
        key = (change.group, change.knob)
        if not self.tree.supports(change.knob) or self._resting(change.knob, now_ms):
            return KnobResult(change, Outcome.UNSUPPORTED, message=f"no working {change.knob.value} on this node")
        if self._holds(change, now_ms):
            return KnobResult(change, Outcome.UNCHANGED, change.value)
        retry = self._retries.get(key)
        if retry is not None and now_ms < retry.next_ms:
            return KnobResult(change, Outcome.FAILED, message="waiting before the next attempt")
        before = self.tree.read(change.group, change.knob)
        if before is not None and _same(self.tree.version, change.knob, before, change.value):
            self._known[key] = (change.value, now_ms)
            return KnobResult(change, Outcome.UNCHANGED, before)
        refusal = self._validate(change)
        if refusal is not None:
            return KnobResult(change, Outcome.REFUSED, before, refusal)
        if self.observe:
            return KnobResult(change, Outcome.OBSERVED, before, change.reason)
        return self._write_now(change, before, now_ms)

    def _write_now(self, change: KnobChange, before: KnobValue | None, now_ms: int) -> KnobResult:
        key = (change.group, change.knob)
        if before is not None:
            self._remember(change, before)
        try:
            self.tree.write(change.group, change.knob, change.value)
        except GroupMissingError as error:
            self.forget(change.group)
            return KnobResult(change, Outcome.GROUP_GONE, before, str(error))
        except KnobUnsupportedError as error:
            self._rest(change.knob, now_ms)
            return KnobResult(change, Outcome.UNSUPPORTED, before, str(error))
        except KnobRefusedError as error:
            self._back_off(key, error.errno, now_ms)
            return KnobResult(change, Outcome.FAILED, before, str(error))
        self._known[key] = (change.value, now_ms)
        self._retries.pop(key, None)
        self._health[change.knob] = _KnobHealth(worked=True)
        return KnobResult(change, Outcome.WRITTEN, before, change.reason)

    def _remember(self, change: KnobChange, before: KnobValue) -> None:
        self.journal.remember(change.group, change.knob, before)
        if change.knob is Knob.CPU_IDLE:
            # Toggling idle makes the kernel reset the shares, so they are part of what must come back.
            shares = self.tree.read(change.group, Knob.CPU_SHARES)
            if shares is not None and before == 0:
                self.journal.remember(change.group, Knob.CPU_SHARES, shares)

    def _back_off(self, key: tuple[str, Knob], code: int, now_ms: int) -> None:
        self._known.pop(key, None)
        self._retries[key] = _longer(self._retries.get(key), now_ms)
        health = self._health.setdefault(key[1], _KnobHealth())
        if code in _UNSUPPORTED_ERRNOS and not health.worked:
            health.strikes += 1
            if health.strikes >= _STRIKES:
                self._rest(key[1], now_ms)

    def _rest(self, knob: Knob, now_ms: int) -> None:
        """A file that refuses everything costs a third of a core when retried each second; probe it slowly."""
        health = self._health.setdefault(knob, _KnobHealth())
        health.retry = _longer(health.retry, now_ms)
        for key in [key for key in self._retries if key[1] is knob]:
            del self._retries[key]

    def _validate(self, change: KnobChange) -> str | None:
        if change.knob is Knob.CPUSET_CPUS:
            return self._validate_cpus(change)
        if change.knob is Knob.CPU_QUOTA:
            return self._validate_quota(change)
        if change.knob is Knob.CPU_SHARES and self.tree.read(change.group, Knob.CPU_IDLE) == 1:
            return "an idle group has no shares of its own; clear cpu_idle first"
        if change.knob is Knob.CPU_BURST:
            return self._validate_burst(change)
        return None

    def _validate_cpus(self, change: KnobChange) -> str | None:
        wanted = parse_cpuset(str(change.value))
        if not wanted and self.tree.version is Version.V2:
            return None  # as the parent has them
        if not wanted:
            return "an empty cpuset would leave the group unable to run"
        parent = parent_of(change.group)
        allowed = self.tree.effective_cpus(parent) if parent is not None else None
        if allowed is not None and not set(wanted) <= set(allowed):
            return f"cpus {change.value} are not all in the parent's {format_cpuset(allowed)}"
        return None

    def _validate_quota(self, change: KnobChange) -> str | None:
        quota = int(change.value)
        if quota == UNLIMITED:
            return None
        if quota < MIN_QUOTA_US:
            return f"the kernel takes a quota of at least {MIN_QUOTA_US} us; got {quota}"
        if self.tree.version is Version.V2:
            return None
        limit = self._limit_above(change.group)
        if limit is not None and quota > limit:
            return f"quota {quota} us is above the parent's {limit} us, which v1 refuses"
        return None

    def _limit_above(self, group: str) -> int | None:
        parent = parent_of(group)
        while parent is not None:
            quota = self.tree.read(parent, Knob.CPU_QUOTA)
            if quota is not None and quota != UNLIMITED:
                return int(quota)
            parent = parent_of(parent)
        return None

    def _validate_burst(self, change: KnobChange) -> str | None:
        quota = self.tree.read(change.group, Knob.CPU_QUOTA)
        if quota in {None, UNLIMITED} or int(change.value) <= int(quota or 0):
            return None
        return f"burst {change.value} us is above the quota {quota} us; the kernel takes at most the quota"

    def restore(self, now_ms: int) -> RestoreReport:
        """Write every journalled original back. What cannot be made equal again is listed, never hidden."""
        entries = self.journal.entries()
        present = [entry for entry in entries if self.tree.exists(entry[0])]
        self._retries.clear()
        self._known.clear()
        self._health.clear()
        # Idle first: leaving the idle class resets the shares, so the shares must be written after it.
        idle = [entry for entry in present if entry[1] is Knob.CPU_IDLE]
        rest = [entry for entry in present if entry[1] is not Knob.CPU_IDLE]
        for batch in (idle, rest):
            self.apply([KnobChange(*entry, reason="restore") for entry in batch], now_ms)
        differences = tuple(self._differences(present))
        if not differences and not self.observe:
            self.journal.clear()
        return RestoreReport(len(present), len(entries) - len(present), differences)

    def _differences(self, entries: Sequence[tuple[str, Knob, KnobValue]]) -> Iterable[str]:
        for group, knob, original in entries:
            now = self.tree.read(group, knob)
            if now is None or not _same(self.tree.version, knob, now, original):
                yield f"{group} {knob.value}: expected {original}, found {now}"


def _longer(previous: _Retry | None, now_ms: int) -> _Retry:
    delay = _FIRST_RETRY_MS if previous is None else min(previous.delay_ms * 2, _LAST_RETRY_MS)
    return _Retry(now_ms + delay, delay)


def _same(version: Version, knob: Knob, left: KnobValue, right: KnobValue) -> bool:
    """Equal once encoded: weights and page-rounded limits lose digits on their way through the kernel."""
    file = KNOB_FILES[knob]
    return file.encode(version, left) == file.encode(version, right)


def _looser(knob: Knob, old: KnobValue, new: KnobValue) -> KnobValue | None:
    """The value that allows both old and new, or None when old already allows the new one."""
    if knob is Knob.CPUSET_CPUS:
        have, want = set(parse_cpuset(str(old))), set(parse_cpuset(str(new)))
        # An empty set is v2's "as the parent": already as wide as can be.
        return None if not have or not want or want <= have else format_cpuset(have | want)
    if old == UNLIMITED:
        return None
    return new if new == UNLIMITED or int(new) > int(old) else None
