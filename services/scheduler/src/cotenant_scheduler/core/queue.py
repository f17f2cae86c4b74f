"""Waiting pods: active, parked until something that can help happens, or held outside.

Pods that would get the same answer form a group. When one of them is refused the group is parked; a wake lets one
member probe, and only its success lets the next one try. So thousands of pods that do not fit cost one attempt per
event, and none of them stands in the way of a pod that fits.
"""

import heapq
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from cotenant_scheduler.core.request import PodRequest
from cotenant_scheduler.core.verdict import Verdict

_BACK_OFF_FIRST_MS: Final = 20
_BACK_OFF_MOST_MS: Final = 1_000
_DOUBLINGS: Final = 6

GroupKey = Hashable
_Order = tuple[int, int, int, str, str]


class Mode(Enum):
    OPEN = "all members are active"
    PARKED = "refused; waits for a wake"
    PROBING = "one member is active, the others follow its fate"


@dataclass(slots=True)
class Group:
    key: GroupKey
    mode: Mode = Mode.OPEN
    members: list[tuple[_Order, int]] = field(default_factory=list)
    """Heap of those that are not active, with the ticket under which they were put there."""
    uids: dict[str, None] = field(default_factory=dict)
    active: int = 0
    verdict: Verdict | None = None
    told: Verdict | None = None
    """What all members have heard; ``verdict`` may have newer numbers."""
    told_ms: int = 0
    failures: int = 0
    not_before_ms: int = 0
    wake_pending: bool = False
    alarm_ms: int | None = None


@dataclass(slots=True)
class _Entry:
    pod: PodRequest
    group: Group
    ticket: int
    active: bool


class Queue:
    """Order: priority, sub-priority, age, name. The same pods in any order of arrival leave in the same order."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._groups: dict[GroupKey, Group] = {}
        self._active: list[tuple[_Order, int]] = []
        self._timers: list[tuple[int, int, GroupKey]] = []
        self._parked_on: dict[str, dict[GroupKey, Group]] = {}
        self._ticket = 0
        self.version = 0
        """Moves whenever the parked groups do."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def pods(self) -> Iterator[PodRequest]:
        return (entry.pod for entry in self._entries.values())

    def get(self, uid: str) -> PodRequest | None:
        entry = self._entries.get(uid)
        return entry.pod if entry is not None else None

    def group_of(self, uid: str) -> Group | None:
        entry = self._entries.get(uid)
        return entry.group if entry is not None else None

    def parked_on(self, topic: str) -> list[Group]:
        """Groups whose verdict names the topic, in the order in which they were parked."""
        return list(self._parked_on.get(topic, {}).values())

    def any_parked_on(self, topic: str) -> bool:
        return bool(self._parked_on.get(topic))

    def add(self, pod: PodRequest, key: GroupKey) -> Verdict | None:
        """Queue a pod; return the answer at once when its group already has one."""
        if pod.uid in self._entries:
            self.remove(pod.uid)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key)
        group.uids[pod.uid] = None
        entry = _Entry(pod, group, 0, active=False)
        self._entries[pod.uid] = entry
        if group.mode is Mode.OPEN:
            self._activate(entry, group)
            return None
        self._shelve(group, entry)
        return group.verdict

    def _activate(self, entry: _Entry, group: Group) -> None:
        entry.ticket, entry.active = self._next_ticket(), True
        group.active += 1
        heapq.heappush(self._active, (entry.pod.order, entry.ticket))

    def _shelve(self, group: Group, entry: _Entry) -> None:
        group.active -= entry.active
        entry.ticket, entry.active = self._next_ticket(), False
        heapq.heappush(group.members, (entry.pod.order, entry.ticket))

    def _next_ticket(self) -> int:
        self._ticket += 1
        return self._ticket

    def _current(self, item: tuple[_Order, int]) -> _Entry | None:
        entry = self._entries.get(item[0][-1])
        return entry if entry is not None and entry.ticket == item[1] else None

    def pop(self) -> PodRequest | None:
        """The next pod to try. It stays known to the queue until ``placed``, ``park`` or ``remove``."""
        while self._active:
            entry = self._current(heapq.heappop(self._active))
            if entry is not None:
                return entry.pod
        return None

    def answered(self, uid: str) -> Verdict | None:
        """The verdict of a popped pod whose group was parked meanwhile; the pod joins the parked ones."""
        entry = self._entries[uid]
        group = entry.group
        if group.mode is not Mode.PARKED:
            return None
        self._shelve(group, entry)
        return group.verdict

    def park(self, uid: str, verdict: Verdict, now_ms: int) -> Group:
        """A member was refused, and so would be the others: nobody asks again before a wake."""
        entry = self._entries[uid]
        group = entry.group
        self._shelve(group, entry)
        self._unlist(group)
        group.mode, group.verdict, group.wake_pending = Mode.PARKED, verdict, False
        self.version += 1
        for topic in verdict.topics:
            self._parked_on.setdefault(topic, {})[group.key] = group
        delay = min(_BACK_OFF_MOST_MS, _BACK_OFF_FIRST_MS << min(group.failures, _DOUBLINGS))
        group.not_before_ms = now_ms + delay
        group.failures += 1
        return group

    def placed(self, uid: str) -> None:
        """Success of a probe lets the next member try."""
        self._entries[uid].group.failures = 0
        self.remove(uid)

    def remove(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        group = entry.group
        del group.uids[uid]
        group.active -= entry.active
        if not group.uids:
            self._unlist(group)
            del self._groups[group.key]
        elif group.mode is Mode.PROBING and group.active == 0:
            self._probe(group)

    def wake_those(self, wanted: Callable[[PodRequest], bool], now_ms: int, *, at_once: bool = True) -> None:
        """Groups with a pod of which this is true; it looks at every pod, so it is for rare events."""
        groups = {id(entry.group): entry.group for entry in self._entries.values() if wanted(entry.pod)}
        for group in groups.values():
            self.wake(group, now_ms, at_once=at_once)

    def wake(self, group: Group, now_ms: int, *, at_once: bool) -> None:
        """``at_once`` when the event is known to help; otherwise not before the group's back-off is over."""
        if group.mode is not Mode.PARKED:
            return
        if at_once or now_ms >= group.not_before_ms:
            self._probe(group)
        elif not group.wake_pending:
            group.wake_pending = True
            self.at(group.not_before_ms, group.key)

    def _unlist(self, group: Group) -> None:
        if group.mode is Mode.PARKED and group.verdict is not None:
            self.version += 1
            for topic in group.verdict.topics:
                del self._parked_on[topic][group.key]

    def _probe(self, group: Group) -> None:
        self._unlist(group)
        group.mode = Mode.PROBING
        while group.members:
            entry = self._current(heapq.heappop(group.members))
            if entry is not None:
                self._activate(entry, group)
                return
        group.mode = Mode.OPEN

    def at(self, when_ms: int, key: GroupKey) -> None:
        """Wake a group by the clock; asking for the same moment twice is asking once."""
        if self._groups[key].alarm_ms == when_ms:
            return
        self._groups[key].alarm_ms = when_ms
        heapq.heappush(self._timers, (when_ms, self._next_ticket(), key))

    def remind(self, group: Group, when_ms: int) -> None:
        """As ``at``, unless the group is going to be woken by the clock anyway, or waits no more."""
        if group.mode is Mode.PARKED and group.alarm_ms is None:
            self.at(when_ms, group.key)

    def tick(self, now_ms: int) -> None:
        while self._timers and self._timers[0][0] <= now_ms:
            when_ms, _, key = heapq.heappop(self._timers)
            group = self._groups.get(key)
            if group is None:
                continue
            if group.alarm_ms == when_ms:
                group.alarm_ms = None
            if group.mode is Mode.PARKED:
                self._probe(group)

    def next_timer_ms(self) -> int | None:
        return self._timers[0][0] if self._timers else None
