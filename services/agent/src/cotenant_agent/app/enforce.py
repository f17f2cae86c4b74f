"""One tick on one node: measure, decide how much best-effort work may run, write the difference, judge memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cotenant_agent.adapters.manifests import Confinement, PodPlan
from cotenant_agent.adapters.ports import NodePorts
from cotenant_agent.app.be_memory import BeMemory
from cotenant_agent.app.inherited import NOTHING, Inherited, read_inherited
from cotenant_agent.app.judge import Judge
from cotenant_agent.app.placed import Placed
from cotenant_agent.app.ticks import Rest, Tick
from cotenant_agent.cgroup.files import MIN_SHARES, UNLIMITED, Knob, default_shares
from cotenant_agent.cgroup.tree import CgroupError
from cotenant_agent.cgroup.writer import KnobChange, Outcome
from cotenant_agent.config import AgentSettings
from cotenant_agent.core import suppress
from cotenant_agent.core.cpuset import format_cpuset, parse_cpuset
from cotenant_agent.core.guard import GuardState
from cotenant_agent.core.isolation import group_of, pod_knobs
from cotenant_agent.core.merge import CpuLimit, hold, merge
from cotenant_agent.core.policy import CpuPolicy, NodePolicy, default_policy
from cotenant_agent.core.usage import BE, GROUPS, LS, SYSTEM, NodeCounters, NodeUsage, measure
from cotenant_common.model.qos import QosClass
from cotenant_common.model.resources import CPU, MEMORY

_NICE_OF_BE = 19


@dataclass(slots=True)
class Enforcer:
    """Plain calls, no bus: the loop that drives it goes on when the bus is away."""

    ports: NodePorts
    settings: AgentSettings
    idle_class: bool = False
    policy: NodePolicy = field(init=False)
    pods: dict[str, Placed] = field(default_factory=dict)
    judge: Judge = field(init=False)
    _local_freeze: str | None = None
    _before: NodeCounters | None = None
    _memory: BeMemory = field(init=False)
    _inherited: Inherited = NOTHING
    _rest: Rest | None = None

    def __post_init__(self) -> None:
        self.policy = default_policy(idle_class=False)
        self.judge = Judge(self.settings, self.pods, self.capacity_milli, self.ports.facts.capacity[MEMORY])
        self._memory = BeMemory(self.ports, self.settings, self.pods, self.group(BE))

    @property
    def guard_state(self) -> GuardState:
        return self.judge.guard_state

    @property
    def frozen(self) -> str | None:
        """Why nothing here may be tightened or removed."""
        return self.policy.frozen or self._local_freeze

    def freeze_locally(self, reason: str | None) -> None:
        """Ordered on the node itself; None ends it."""
        if reason != self._local_freeze:
            self._local_freeze = reason
            self._rest = None

    @property
    def capacity_milli(self) -> int:
        return self.ports.facts.capacity[CPU]

    def group(self, *parts: str) -> str:
        return "/".join((self.settings.node, *parts))

    def prepare(self, now_ms: int) -> None:
        """Make the groups of this node; what an earlier agent left there is taken over as it is."""
        tree = self.ports.tree
        if tree is not None:
            for name in GROUPS:
                tree.create(self.group(name))
                self.ports.sampler.track_group(name, self.group(name))
            if self.ports.writer is not None:
                self.ports.writer.observe = self.settings.observe
            self._confine_slice(now_ms)
            self._weigh_services(now_ms)
            self.idle_class = self._enter_idle_class(now_ms)
        self.set_policy(default_policy(idle_class=self.idle_class), now_ms)
        self._inherited = NOTHING if tree is None else read_inherited(tree, self.group(BE), self._be_limit_milli())

    def take_over(self) -> None:
        """The policy is read and all that is bound here is in `pods`: what was inherited binds no longer."""
        if self._inherited != NOTHING:
            self._inherited = NOTHING
            self._rest = None

    def _confine_slice(self, now_ms: int) -> None:
        """A v1 group starts with a copy of its parent's cpus, and a parent cannot be narrower than its children."""
        tree = self.ports.tree
        if tree is None or self.ports.facts.whole_machine:
            return
        own = {cpu.cpu for cpu in self.ports.facts.cpus}
        groups = [self.group(name) for name in GROUPS]
        beneath = [self.group(BE), *(pod for group in groups for pod in tree.children(group))]
        # Best-effort groups and pods may hold fewer on purpose; only what reaches beyond the slice is brought back.
        beyond = [group for group in beneath if not set(tree.effective_cpus(group) or ()) <= own]
        chosen = dict.fromkeys([self.group(), self.group(LS), self.group(SYSTEM), *beyond])
        cpus = format_cpuset(own)
        self._apply([KnobChange(group, Knob.CPUSET_CPUS, cpus, "the agent's slice") for group in chosen], now_ms)

    def _weigh_services(self, now_ms: int) -> None:
        """A group competes as one: with the weight of a single process, services would lose by being put together."""
        tree = self.ports.tree
        if tree is None:
            return
        wanted = default_shares(tree.version) * len(self.ports.facts.cpus)
        for group in ("", self.group()):
            current = tree.read(group, Knob.CPU_SHARES)
            if current is not None and int(current) < wanted:
                self._apply([KnobChange(group, Knob.CPU_SHARES, wanted, "one share per cpu of the slice")], now_ms)

    def _enter_idle_class(self, now_ms: int) -> bool:
        """The strongest means present: the idle class, else the smallest weight."""
        writer = self.ports.writer
        if writer is None:
            return False
        result = writer.write(KnobChange(self.group(BE), Knob.CPU_IDLE, 1, "BE yields to everything else"), now_ms)
        if result.outcome in {Outcome.WRITTEN, Outcome.UNCHANGED}:
            return True
        if result.outcome is not Outcome.OBSERVED:
            writer.write(KnobChange(self.group(BE), Knob.CPU_SHARES, MIN_SHARES, "no idle class here"), now_ms)
        return False

    def set_policy(self, policy: NodePolicy, now_ms: int) -> None:
        self._rest = None
        writer = self.ports.writer
        was_observing = writer is not None and writer.observe
        was_capped = self._caps_by_quota()
        self.policy = policy if not self.settings.observe else replace(policy, observe=True)
        if self._caps_by_quota() is not was_capped:
            self._recast_quotas(now_ms)
        if writer is None or self.policy.observe is was_observing:
            return
        if self.policy.observe:
            writer.restore(now_ms)
            writer.observe = True
        else:
            writer.observe = False
            self._confine_slice(now_ms)
            self._weigh_services(now_ms)
            self.idle_class = self._enter_idle_class(now_ms)
            for placed in self.pods.values():
                self._write_pod(placed, now_ms)

    def _recast_quotas(self, now_ms: int) -> None:
        """Either the group holds all BE pods or each holds itself; the group opens before its pods may grow."""
        if not self._caps_by_quota():
            self._apply([KnobChange(self.group(BE), Knob.CPU_QUOTA, UNLIMITED, "pods hold themselves")], now_ms)
        for placed in self.pods.values():
            if placed.best_effort:
                self._write_pod(placed, now_ms)

    def confinement(self, plan: PodPlan) -> Confinement:
        """How the pod's processes are held from their first instruction."""
        tree = self.ports.tree
        group = self.group(group_of(plan.pod.qos), f"pod{plan.pod.uid}")
        if tree is not None:
            return Confinement(procs_files=tuple(str(path) for path in tree.procs_files(group)))
        best_effort = plan.pod.qos is QosClass.BE and not self.policy.observe
        cpus = () if self.ports.facts.whole_machine else tuple(cpu.cpu for cpu in self.ports.facts.cpus)
        return Confinement((), _NICE_OF_BE if best_effort else None, best_effort, cpus)

    def place(self, plan: PodPlan, cpuset: str | None, now_ms: int) -> Placed:
        """Make the pod's group and its limits. Placing again only puts right what differs. Raise CgroupError."""
        self._rest = None
        group = self.group(group_of(plan.pod.qos), f"pod{plan.pod.uid}")
        placed = self.pods.setdefault(plan.pod.uid, Placed(plan, group, cpuset))
        if self.ports.tree is not None:
            self.ports.tree.create(group)
        sensitive = group_of(plan.pod.qos) == LS
        self.ports.sampler.track_pod(plan.pod.uid, group, latency_sensitive=sensitive)
        self._write_pod(placed, now_ms)
        self._write_be_memory(now_ms)
        return placed

    def _write_pod(self, placed: Placed, now_ms: int) -> None:
        pod = placed.plan.pod
        knobs = pod_knobs(
            pod.qos,
            pod.requests,
            pod.limits,
            be_capped_by_quota=self._caps_by_quota(),
            cpuset=placed.cpuset,
        )
        values: dict[Knob, int | str] = {
            Knob.CPU_SHARES: knobs.shares,
            Knob.CPU_QUOTA: knobs.quota_us,
            Knob.MEMORY_MAX: knobs.memory_bytes,
            Knob.PIDS_MAX: self.settings.pod_pids_limit,
        }
        if knobs.cpus is not None:
            values[Knob.CPUSET_CPUS] = knobs.cpus
        reason = f"{pod.qos.value or 'LS'} pod {pod.key}"
        self._apply([KnobChange(placed.group, knob, value, reason) for knob, value in values.items()], now_ms)

    def _caps_by_quota(self) -> bool:
        return self.policy.enabled and self._cpu_policy() is CpuPolicy.QUOTA

    def _cpu_policy(self) -> CpuPolicy:
        tree = self.ports.tree
        if self.policy.cpu_policy is CpuPolicy.QUOTA and tree is not None and not tree.supports(Knob.CPU_QUOTA):
            return CpuPolicy.CPUSET
        return self.policy.cpu_policy

    def kill(self, uid: str) -> None:
        """End its processes now; whoever waits for them to end sees it."""
        placed = self.pods.get(uid)
        if placed is not None and self.ports.tree is not None:
            self.ports.tree.kill(placed.group)

    def remove(self, uid: str) -> bool:
        """End the pod's group with whatever is left in it; False while the kernel still holds it."""
        placed = self.pods.get(uid)
        if placed is None:
            return True
        tree = self.ports.tree
        if tree is not None:
            try:
                tree.kill(placed.group)
                tree.remove(placed.group)
            except CgroupError:
                return False
            if self.ports.writer is not None:
                self.ports.writer.forget(placed.group)
        self.ports.sampler.untrack_pod(uid)
        del self.pods[uid]
        self._rest = None
        return True

    def group_holding(self, uid: str) -> str | None:
        """The group of a pod that is not placed, such as one an earlier agent ran."""
        tree = self.ports.tree
        names = [self.group(name, f"pod{uid}") for name in GROUPS]
        return None if tree is None else next((name for name in names if tree.exists(name)), None)

    def stray_groups(self) -> list[str]:
        """Pod groups that hold no pod we know: left by an agent that died between two steps."""
        tree = self.ports.tree
        if tree is None:
            return []
        known = {placed.group for placed in self.pods.values()}
        found = [group for name in GROUPS for group in tree.children(self.group(name))]
        return [group for group in found if group not in known and not tree.pids(group)]

    def remove_group(self, group: str) -> None:
        if self.ports.tree is not None:
            try:
                self.ports.tree.remove(group)
            except CgroupError:
                return
            if self.ports.writer is not None:
                self.ports.writer.forget(group)

    def take_latency(self, namespace: str, pod: str, p50_ms: float | None, p99_ms: float | None, now_ms: int) -> None:
        """What an application says of itself; heard only while it has a target."""
        for placed in self.pods.values():
            own, target = placed.plan.pod, placed.plan.target
            if target is not None and (own.namespace, own.name) == (namespace, pod):
                placed.latency_ms = p99_ms if target.percentile >= 90 else p50_ms
                placed.latency_at_ms = now_ms
                self._rest = None

    def tick(self, now_ms: int) -> Tick:
        """The very object of the last tick when nothing has changed since."""
        counters = self.ports.sampler.sample()
        usage = measure(self._before, counters)
        self._before = counters
        if self._rest is not None and self._rest.holds(usage, now_ms):
            return self._rest.tick
        guard_before, acts_before = self.judge.guard_state, self._acts()
        tick = self._decide(usage, now_ms)
        moved = self.judge.guard_state != guard_before or self._acts() != acts_before
        # A memory decision depends on who is leaving, a latency on how old it is: neither may be repeated unseen.
        judged = tick.memory is not None or bool(tick.would_evict)
        timed = judged or any(placed.latency_at_ms is not None for placed in self.pods.values())
        self._rest = None if moved or timed else Rest(tick, now_ms)
        return tick

    def _acts(self) -> int:
        """Knob changes so far that were more than finding everything as wished."""
        writer = self.ports.writer
        return 0 if writer is None else writer.counts.total() - writer.counts[Outcome.UNCHANGED]

    def _decide(self, usage: NodeUsage, now_ms: int) -> Tick:
        held, frozen = self._be_limit_milli(), self.frozen
        wishes = self.judge.wishes(
            self.policy,
            usage,
            now_ms,
            held_milli=held,
            inherited_milli=self._inherited.cpu_milli,
            frozen=frozen is not None,
        )
        wish = merge(wishes)
        limit = wish if frozen is None else hold(wish, held, frozen)
        self._write_limit(limit, now_ms)
        be = usage.groups.get(BE)
        self._memory.used_bytes = None if be is None else be.memory_bytes
        self._write_be_memory(now_ms)
        memory = self.judge.memory(self.policy, usage, frozen=frozen is not None)
        now_held = self._be_limit_milli()
        return Tick(usage, limit, now_held, self.judge.guard_state, memory.decision, wish.limit_milli, memory.would)

    def _write_limit(self, limit: CpuLimit, now_ms: int) -> None:
        if self.ports.tree is None:
            return
        if self._cpu_policy() is CpuPolicy.QUOTA:
            self._write_quota(limit, now_ms)
            self._write_be_cpus(self._be_cpus(None), limit.message, now_ms)
        else:
            self._apply([KnobChange(self.group(BE), Knob.CPU_QUOTA, UNLIMITED, "cpuset policy")], now_ms)
            self._write_be_cpus(self._be_cpus(limit.limit_milli), limit.message, now_ms)

    def _write_quota(self, limit: CpuLimit, now_ms: int) -> None:
        tree = self.ports.tree
        if tree is None or (current := tree.read(self.group(BE), Knob.CPU_QUOTA)) is None:
            return
        wanted: int | None = UNLIMITED
        if limit.limit_milli is not None:
            raise_percent = suppress.IDLE_CLASS_RAISE_PERCENT if self.idle_class else suppress.RAISE_PERCENT
            wanted = suppress.next_quota_us(int(current), limit.limit_milli, self.capacity_milli, raise_percent)
        if wanted is not None and wanted != current:
            quota = KnobChange(self.group(BE), Knob.CPU_QUOTA, wanted, limit.message)
            burst = KnobChange(self.group(BE), Knob.CPU_BURST, suppress.burst_us(wanted), "unused share carries over")
            # A burst above the quota is refused, so it shrinks before the quota and grows after it.
            carried = tree.read(self.group(BE), Knob.CPU_BURST)
            shrinks = carried is not None and UNLIMITED < wanted < int(carried)
            for change in (burst, quota) if shrinks else (quota, burst):
                self._apply([change], now_ms)

    def _be_cpus(self, limit_milli: int | None) -> tuple[int, ...]:
        """Cpus BE may use: everything but LSE cores, or under the cpuset policy as many as the limit allows."""
        owned = self._owned(QosClass.LSE)
        lsr = self._owned(QosClass.LSR)
        free = [cpu for cpu in self.ports.facts.cpus if cpu.cpu not in owned]
        if limit_milli is None:
            return tuple(cpu.cpu for cpu in free)
        tree = self.ports.tree
        old = tree.effective_cpus(self.group(BE)) if tree is not None else None
        count = suppress.next_cpu_count(limit_milli, len(old or ()), len(self.ports.facts.cpus))
        shared = [cpu for cpu in free if cpu.cpu not in lsr]
        return suppress.choose_cpus(min(count, len(free)), shared, [cpu for cpu in free if cpu.cpu in lsr])

    def _owned(self, qos: QosClass) -> frozenset[int]:
        return frozenset(
            cpu
            for placed in self.pods.values()
            if placed.plan.pod.qos is qos and placed.cpuset
            for cpu in parse_cpuset(placed.cpuset)
        )

    def _write_be_cpus(self, cpus: tuple[int, ...], reason: str, now_ms: int) -> None:
        """Group and pods together, so that neither is ever wider than what holds it."""
        tree = self.ports.tree
        if tree is None or not cpus or not tree.supports(Knob.CPUSET_CPUS):
            return
        inherited = self._inherited.cpus
        # All of it when nothing is left: an empty cpuset would leave the group unable to run.
        allowed = cpus if inherited is None else ([cpu for cpu in cpus if cpu in inherited] or inherited)
        text = format_cpuset(allowed)
        groups = [self.group(BE), *(p.group for p in self.pods.values() if p.best_effort)]
        self._apply([KnobChange(group, Knob.CPUSET_CPUS, text, reason) for group in groups], now_ms)

    def _be_limit_milli(self) -> int | None:
        tree = self.ports.tree
        if tree is None:
            return None
        if self._cpu_policy() is CpuPolicy.CPUSET:
            cpus = tree.effective_cpus(self.group(BE))
            return None if cpus is None or len(cpus) == len(self.ports.facts.cpus) else 1_000 * len(cpus)
        quota = tree.read(self.group(BE), Knob.CPU_QUOTA)
        return None if quota is None or quota == UNLIMITED else int(quota) // suppress.QUOTA_US_PER_MILLI

    def _write_be_memory(self, now_ms: int) -> None:
        if self._inherited.memory_bytes is None:
            self._apply([self._memory.wish(frozen=self.frozen is not None)], now_ms)

    def _apply(self, changes: list[KnobChange], now_ms: int) -> None:
        if self.ports.writer is not None:
            self.ports.writer.apply(changes, now_ms)

    def knob_counts(self) -> Mapping[str, int]:
        writer = self.ports.writer
        return {} if writer is None else {outcome.value: writer.counts[outcome] for outcome in Outcome}
