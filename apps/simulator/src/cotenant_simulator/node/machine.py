"""A machine in memory: groups that obey the kernel's rules, time that is shared out, memory that runs out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cotenant_agent.cgroup.fake import FakeCgroupTree
from cotenant_agent.cgroup.files import UNLIMITED, Knob, KnobValue
from cotenant_agent.core.usage import BE, GROUPS
from cotenant_simulator.core import kernel
from cotenant_simulator.core.kernel import Group, OomKill, Share, Tenant
from cotenant_simulator.core.scenario import Demand
from cotenant_simulator.node.demands import Demands

SYSTEM_SHARE: Final = "the system"
_PERIODS_PER_S: Final = 10
_QUOTA_US_PER_MILLI: Final = 100
_BE_BADNESS: Final = 1_000
_SHOWN_SLICES_PER_S: Final = 100.0


@dataclass(slots=True)
class Totals:
    """Running totals, as the kernel's files show them. Times in microseconds."""

    cpu_us: float = 0.0
    periods: float = 0.0
    throttled_periods: float = 0.0
    wait_us: float = 0.0
    slices: float = 0.0
    """In thousandths."""


@dataclass(slots=True)
class Tenancy:
    """A pod that runs here. ``group`` is its cgroup."""

    uid: str
    key: str
    group: str
    own: Demand
    totals: Totals = field(default_factory=Totals)
    class_name: str = field(init=False)
    """``ls``, ``be`` or ``system``: the group above the pod's own."""

    def __post_init__(self) -> None:
        self.class_name = self.group.rpartition("/")[0].rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Rates:
    """What goes on until something changes: shares, and what they add up to per millisecond."""

    shares: Mapping[str, Share]
    """By pod uid, and SYSTEM_SHARE."""
    pods: Mapping[str, "PodRate"]
    system_milli: float
    throttled: Mapping[str, bool]
    """By class."""
    memory: Mapping[str, int]
    """By class."""
    pressure: float
    """Of the services: that best-effort work waits for its turn is what it is there for."""
    memory_pressure: float


@dataclass(frozen=True, slots=True)
class PodRate:
    tenant: Tenancy
    demand: Demand
    given_milli: float
    throttled: bool
    slices: float
    """Per second, whole: so that seconds in which nothing changes look the same."""
    wait_us: float
    """Per millisecond."""
    pressure: float
    memory_pressure: float | None


class KernelTree(FakeCgroupTree):
    """Tells the machine before a knob changes, so that the time until then counts under the old value."""

    def __init__(self, cpus: str, before_change: Callable[[], None]) -> None:
        super().__init__(cpus=cpus)
        self._before_change = before_change

    def write(self, group: str, knob: Knob, value: KnobValue) -> None:
        self._before_change()
        super().write(group, knob, value)
        # A simulated month of writes is nobody's to read.
        self.writes.clear()


class Machine:
    """Rates are worked out when something changed, and only added up otherwise."""

    def __init__(
        self, node: str, cpu_milli: int, memory_bytes: int, cpus: str, demands: Demands, now_ms: Callable[[], int]
    ) -> None:
        self.node = node
        self.cpu_milli = cpu_milli
        self.memory_bytes = memory_bytes
        self.tree = KernelTree(cpus, self.changes)
        self.tenants: dict[str, Tenancy] = {}
        self.groups: dict[str, Totals] = {name: Totals() for name in GROUPS}
        self.system = Totals()
        self.on_oom: Callable[[OomKill], None] = lambda _: None
        self._demands = demands
        self._now_ms = now_ms
        self._at_ms = now_ms()
        self._rates: Rates | None = None
        self._memory_settled = False
        demands.listen(self.changes)

    def close(self) -> None:
        self._demands.forget(self.changes)

    def changes(self) -> None:
        """Call before anything changes that the rates depend on."""
        self.advance()
        self._rates = None
        self._memory_settled = False

    def enter(self, tenant: Tenancy) -> None:
        self.changes()
        self.tenants[tenant.uid] = tenant

    def leave(self, uid: str) -> None:
        self.changes()
        self.tenants.pop(uid, None)

    def demand(self, tenant: Tenancy) -> Demand:
        return self._demands.of_pod(tenant.key, tenant.own)

    @property
    def system_demand(self) -> Demand:
        return self._demands.of_system(self.node)

    # Time

    @property
    def rates(self) -> Rates:
        if self._rates is None:
            self._rates = self._work_out()
        return self._rates

    def advance(self) -> None:
        """Add up what everybody got since the last time."""
        now_ms = self._now_ms()
        elapsed_ms, self._at_ms = now_ms - self._at_ms, now_ms
        if elapsed_ms <= 0:
            return
        rates = self.rates
        periods = _PERIODS_PER_S * elapsed_ms / 1_000
        self.system.cpu_us += rates.system_milli * elapsed_ms
        for rate in rates.pods.values():
            used_us = rate.given_milli * elapsed_ms
            totals = rate.tenant.totals
            totals.cpu_us += used_us
            totals.periods += periods
            totals.slices += rate.slices * elapsed_ms
            totals.wait_us += rate.wait_us * elapsed_ms
            if rate.throttled:
                totals.throttled_periods += periods
            self.groups[rate.tenant.class_name].cpu_us += used_us
        for name, group in self.groups.items():
            group.periods += periods
            if rates.throttled[name]:
                group.throttled_periods += periods

    def _work_out(self) -> Rates:
        shares = kernel.share_out(self.cpu_milli, self._tree_of_groups())
        idle_class = self.tree.read(f"{self.node}/{BE}", Knob.CPU_IDLE) == 1
        saturation = 0.0 if idle_class else self._be_in_the_way(shares)
        pods = {
            uid: self._rate(one, shares[uid], idle_class=idle_class, saturation=saturation)
            for uid, one in self.tenants.items()
        }
        shown = [rate.memory_pressure for rate in pods.values() if rate.memory_pressure is not None]
        system = shares.get(SYSTEM_SHARE)
        return Rates(
            shares=shares,
            pods=pods,
            system_milli=0.0 if system is None else system.given_milli,
            throttled={name: self._throttles(name) for name in GROUPS},
            memory={
                name: sum(rate.demand.memory_bytes or 0 for rate in pods.values() if rate.tenant.class_name == name)
                for name in GROUPS
            },
            pressure=max((rate.pressure for rate in pods.values() if rate.tenant.class_name != BE), default=0.0),
            memory_pressure=max(shown, default=0.0),
        )

    def _rate(self, tenant: Tenancy, share: Share, *, idle_class: bool, saturation: float) -> PodRate:
        """The kernel's own numbers, where no signal of the scenario stands in for them."""
        signal = self._demands.signal(self.node, tenant.key)
        slices = kernel.slices_per_s(share)
        wait_ms = kernel.wait_ms_per_slice(share, idle_class=idle_class, saturation=saturation)
        pressure = share.pressure_percent
        if signal is not None and signal.sched_wait_ms is not None:
            slices, wait_ms = _SHOWN_SLICES_PER_S, signal.sched_wait_ms
        if signal is not None and signal.psi_cpu_some is not None:
            pressure = signal.psi_cpu_some
        return PodRate(
            tenant=tenant,
            demand=self.demand(tenant),
            given_milli=share.given_milli,
            throttled=share.throttled,
            slices=slices,
            wait_us=slices * wait_ms,
            pressure=pressure,
            memory_pressure=None if signal is None else signal.psi_memory_some,
        )

    def _throttles(self, name: str) -> bool:
        quota = self._number(f"{self.node}/{name}", Knob.CPU_QUOTA)
        if quota is None:
            return False
        wanted = sum(self.demand(one).cpu_milli or 0 for one in self.tenants.values() if one.class_name == name)
        return wanted * _QUOTA_US_PER_MILLI > quota

    def _be_in_the_way(self, shares: Mapping[str, Share]) -> float:
        """How much of the machine best-effort work holds while nothing is left over."""
        given = sum(share.given_milli for share in shares.values())
        if given < self.cpu_milli - 1:
            return 0.0
        be = sum(shares[uid].given_milli for uid, one in self.tenants.items() if one.class_name == BE)
        return be / self.cpu_milli

    def _tree_of_groups(self) -> list[Group]:
        groups = [Group(SYSTEM_SHARE, demand_milli=float(self.system_demand.cpu_milli or 0))]
        for name in GROUPS:
            path = f"{self.node}/{name}"
            leaves = tuple(self._leaf(one) for one in self.tenants.values() if one.class_name == name)
            if leaves:
                groups.append(self._group(name, path, leaves))
        return groups

    def _leaf(self, tenant: Tenancy) -> Group:
        return self._group(tenant.uid, tenant.group, (), float(self.demand(tenant).cpu_milli or 0))

    def _group(self, name: str, path: str, children: tuple[Group, ...], demand: float = 0.0) -> Group:
        quota_us = self._number(path, Knob.CPU_QUOTA)
        cpus = self.tree.effective_cpus(path)
        return Group(
            name,
            weight=self._number(path, Knob.CPU_SHARES) or 1024,
            idle=self.tree.read(path, Knob.CPU_IDLE) == 1,
            quota_milli=None if quota_us is None else quota_us / _QUOTA_US_PER_MILLI,
            cpus=None if cpus is None else len(cpus),
            demand_milli=demand,
            children=children,
        )

    def _number(self, group: str, knob: Knob) -> int | None:
        value = self.tree.read(group, knob)
        return None if value is None or value == UNLIMITED else int(value)

    # What anybody may ask

    def used_bytes(self) -> int:
        """What the kernel gave out, the unknown part of the system left aside."""
        return sum(self.rates.memory.values()) + (self.system_demand.memory_bytes or 0)

    def used_milli(self) -> int:
        return round(sum(share.given_milli for share in self.rates.shares.values()))

    # Memory

    def settle_memory(self) -> None:
        """Kill whoever the kernel would kill now."""
        if self._memory_settled:
            return
        limit = self._number(f"{self.node}/{BE}", Knob.MEMORY_MAX)
        kills = kernel.oom_kills(
            self.memory_bytes,
            self.system_demand.memory_bytes or 0,
            [self._tenant(one) for one in self.tenants.values()],
            {} if limit is None else {BE: limit},
        )
        self._memory_settled = True
        for kill in kills:
            self.on_oom(kill)

    def _tenant(self, one: Tenancy) -> Tenant:
        return Tenant(
            one.uid,
            self.demand(one).memory_bytes or 0,
            self._number(one.group, Knob.MEMORY_MAX),
            _BE_BADNESS if one.class_name == BE else 0,
            one.class_name,
        )
