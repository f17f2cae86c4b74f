"""How a machine shares itself: CPU by weight under caps, the idle class last, memory to whoever takes it.

A fluid model of the kernel's fair scheduler. Every runnable task that gets no CPU *waits*; every group whose quota is
smaller than what it wants is *throttled*. CPU in milli-cores, memory in bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SLICE_MS: Final = 3.0
"""How long a task runs before another one may: what a waking task waits for where it cannot preempt."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Group:
    """A node of the tree. A leaf has a demand; ``quota_milli`` and ``cpus`` None are no limit."""

    name: str
    weight: int = 1024
    idle: bool = False
    quota_milli: float | None = None
    cpus: int | None = None
    demand_milli: float = 0.0
    children: tuple["Group", ...] = ()

    @property
    def cap_milli(self) -> float:
        """The most this group could use, whatever the others do."""
        wanted = sum(child.cap_milli for child in self.children) + self.demand_milli
        if self.quota_milli is not None:
            wanted = min(wanted, self.quota_milli)
        return wanted if self.cpus is None else min(wanted, 1000.0 * self.cpus)

    @property
    def throttled(self) -> bool:
        """Whether it wants more than its quota lets it have in every period."""
        wanted = sum(child.cap_milli for child in self.children) + self.demand_milli
        return self.quota_milli is not None and wanted > self.quota_milli + _ROUNDING


@dataclass(frozen=True, slots=True)
class Share:
    """What one leaf gets. ``waiting_milli``: runnable work without a CPU; ``throttled``: a quota stopped it."""

    given_milli: float
    waiting_milli: float
    throttled: bool
    idle: bool

    @property
    def pressure_percent(self) -> float:
        """Part of the time in which some of its tasks wait."""
        runnable = self.given_milli + self.waiting_milli
        return 100.0 * self.waiting_milli / runnable if runnable > _ROUNDING else 0.0


def share_out(capacity_milli: float, groups: Sequence[Group]) -> dict[str, Share]:
    """Shares of all leaves by name. Together they never pass the capacity, and none passes its demand."""
    shares: dict[str, Share] = {}
    _divide(capacity_milli, groups, shares, throttled=False, idle=False)
    return shares


def _divide(
    capacity_milli: float, groups: Sequence[Group], shares: dict[str, Share], *, throttled: bool, idle: bool
) -> None:
    given = _class_by_class(capacity_milli, groups)
    for group, amount in zip(groups, given, strict=True):
        held = throttled or group.throttled
        below = idle or group.idle
        if group.children:
            _divide(amount, group.children, shares, throttled=held, idle=below)
            continue
        # What a quota keeps back is throttling; what is left of the cap is waiting in a run queue.
        waiting = 0.0 if held else max(0.0, min(group.cap_milli, group.demand_milli) - amount)
        shares[group.name] = Share(amount, waiting, held and group.demand_milli > amount + _ROUNDING, below)


def _class_by_class(capacity_milli: float, groups: Sequence[Group]) -> list[float]:
    """Normal groups first; what they leave goes to the idle class."""
    given = [0.0] * len(groups)
    left = capacity_milli
    for wanted_class in (False, True):
        members = [at for at, group in enumerate(groups) if group.idle is wanted_class]
        filled = fill(left, [(groups[at].weight, groups[at].cap_milli) for at in members])
        for at, amount in zip(members, filled, strict=True):
            given[at] = amount
            left -= amount
    return given


def fill(capacity: float, wishes: Sequence[tuple[int, float]]) -> list[float]:
    """Divide by weight; what one does not want goes to the others, by weight again."""
    given = [0.0] * len(wishes)
    left = max(0.0, capacity)
    # In the order in which they are satisfied, so that one pass is exact: least want per weight first.
    order = sorted(range(len(wishes)), key=lambda at: (wishes[at][1] / max(wishes[at][0], 1), at))
    weights = float(sum(max(weight, 1) for weight, _ in wishes))
    for at in order:
        weight, want = max(wishes[at][0], 1), wishes[at][1]
        given[at] = min(want, left * weight / weights)
        left -= given[at]
        weights -= weight
    return given


def wait_ms_per_slice(share: Share, *, idle_class: bool, saturation: float) -> float:
    """Mean wait for each scheduling: for lack of CPU, and for neighbours that this kernel cannot make step aside.

    ``saturation`` is the part of the machine on which best-effort work runs while others are runnable, 0 to 1.
    """
    if share.given_milli <= _ROUNDING:
        return 0.0 if share.waiting_milli <= _ROUNDING else 1000.0
    lack = SLICE_MS * share.waiting_milli / share.given_milli
    return lack + (0.0 if idle_class else SLICE_MS * saturation)


def slices_per_s(share: Share) -> float:
    """A thread that never waits is still scheduled for each piece of work; a hundred a second stand for that."""
    return max(100.0, float(round(share.given_milli / SLICE_MS))) if share.given_milli > _ROUNDING else 0.0


@dataclass(frozen=True, slots=True)
class Tenant:
    """A pod's memory. ``limit_bytes`` None: no limit of its own. A higher ``badness`` is killed first."""

    name: str
    used_bytes: int
    limit_bytes: int | None = None
    badness: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True)
class OomKill:
    name: str
    message: str


def oom_kills(
    capacity_bytes: int,
    system_bytes: int,
    tenants: Iterable[Tenant],
    group_limits: Mapping[str, int],
) -> list[OomKill]:
    """Who dies for memory: each one over its own limit, then of a full group, then of a full machine.

    Within a group and on the machine the worst badness goes first, then the largest.
    """
    kills: list[OomKill] = []
    alive: list[Tenant] = []
    for one in tenants:
        if one.limit_bytes is not None and one.used_bytes > one.limit_bytes:
            kills.append(OomKill(one.name, f"{one.used_bytes} bytes are over its limit of {one.limit_bytes}"))
        else:
            alive.append(one)
    for name, limit in group_limits.items():
        members = [one for one in alive if one.group == name]
        chosen = _until_it_fits(limit, members, f"group {name}")
        kills += chosen
        alive = _without(alive, chosen)
    return kills + _until_it_fits(capacity_bytes - system_bytes, alive, "the machine")


def _until_it_fits(limit: int, members: Sequence[Tenant], what: str) -> list[OomKill]:
    used = sum(one.used_bytes for one in members)
    kills: list[OomKill] = []
    for one in sorted(members, key=lambda one: (-one.badness, -one.used_bytes, one.name)):
        if used <= limit:
            break
        kills.append(OomKill(one.name, f"{what} holds {used} bytes, {limit} is all there is"))
        used -= one.used_bytes
    return kills


def _without(tenants: Sequence[Tenant], kills: Sequence[OomKill]) -> list[Tenant]:
    dead = dict.fromkeys(kill.name for kill in kills)
    return [one for one in tenants if one.name not in dead]
