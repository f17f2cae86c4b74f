"""What a tick's numbers ask for: how much best-effort work may run, and which pods would have to leave."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cotenant_agent.app.placed import Placed
from cotenant_agent.config import AgentSettings
from cotenant_agent.core import guard, suppress
from cotenant_agent.core.evict import Candidate, MemoryDecision, MemoryInputs, memory_victims
from cotenant_agent.core.guard import GuardSettings, GuardState, LatencySignal
from cotenant_agent.core.merge import CpuWish, WishSource
from cotenant_agent.core.policy import NodePolicy
from cotenant_agent.core.usage import BE, LS, SYSTEM, NodeUsage
from cotenant_common.model.reasons import ReasonCode

_LATENCY_FRESH_MS = 5_000


@dataclass(frozen=True, slots=True)
class MemoryJudgement:
    """``decision`` is to be carried out; ``would`` says why which pod would leave, were it not only looked at."""

    decision: MemoryDecision | None = None
    would: tuple[str, ...] = ()


@dataclass(slots=True)
class Judge:
    """``pods`` is the enforcer's own table."""

    settings: AgentSettings
    pods: Mapping[str, Placed]
    capacity_milli: int
    capacity_bytes: int
    guard_state: GuardState = field(default_factory=GuardState)

    def wishes(
        self,
        policy: NodePolicy,
        usage: NodeUsage,
        now_ms: int,
        *,
        held_milli: int | None,
        inherited_milli: int | None,
        frozen: bool,
    ) -> list[CpuWish]:
        """The last target stays while a sample is missing: unknown is no reason to let go."""
        if not policy.enabled:
            self.guard_state = GuardState()
            return []
        wishes = []
        target = suppress.be_target(self._suppress_inputs(policy, usage))
        if target is not None:
            wishes.append(CpuWish(WishSource.SUPPRESS, target.limit_milli, ReasonCode.SUPPRESSED, target.message))
        elif held_milli is not None:
            message = f"BE stays at {held_milli}m: this interval was not measured"
            wishes.append(CpuWish(WishSource.SUPPRESS, held_milli, ReasonCode.METRICS_MISSING, message))
        if inherited_milli is not None:
            message = f"BE stays at {inherited_milli}m at the most: the policy and the bindings are still to be read"
            wishes.append(CpuWish(WishSource.POLICY, inherited_milli, ReasonCode.SUPPRESSED, message))
        cap = self._guard(policy, usage, now_ms, frozen=frozen)
        return wishes if cap is None else [*wishes, cap]

    def _suppress_inputs(self, policy: NodePolicy, usage: NodeUsage) -> suppress.SuppressInputs:
        be = usage.groups.get(BE)
        others = [usage.groups[name].cpu_milli for name in (LS, SYSTEM) if name in usage.groups]
        known = [milli for milli in others if milli is not None]
        return suppress.SuppressInputs(
            capacity_milli=self.capacity_milli,
            threshold_percent=policy.cpu_threshold_percent,
            node_milli=usage.cpu_milli,
            non_be_milli=sum(known) if len(known) == len(others) else None,
            be_milli=None if be is None else be.cpu_milli,
            reserved_milli=self.settings.reserved_cpu_milli,
            min_percent=policy.cpu_min_percent,
        )

    def _guard(self, policy: NodePolicy, usage: NodeUsage, now_ms: int, *, frozen: bool) -> CpuWish | None:
        if not self.settings.guard:
            return None
        be = usage.groups.get(BE)
        before = self.guard_state.cap_milli
        state = guard.step(
            self.guard_state,
            self.latency_signals(usage, now_ms),
            None if be is None else be.cpu_milli,
            self.capacity_milli,
            self._guard_settings(policy),
        )
        cap = state.cap_milli
        # In a freeze nothing comes of a step down: steps that pile up would fall on BE at once when it ends.
        if not frozen or cap is None or (before is not None and cap >= before):
            self.guard_state = state
        if cap is None:
            return None
        return CpuWish(WishSource.GUARD, cap, ReasonCode.LATENCY_GUARD, f"BE held to {cap}m: {state.message}")

    def _guard_settings(self, policy: NodePolicy) -> GuardSettings:
        """What a policy promises to BE at the least, the guard leaves to it as well."""
        settings = self.settings.guard_settings
        return replace(settings, floor_percent=max(settings.floor_percent, policy.cpu_min_percent or 0))

    def latency_signals(self, usage: NodeUsage, now_ms: int) -> list[LatencySignal]:
        signals = []
        for uid, placed in self.pods.items():
            used = usage.pods.get(uid)
            if placed.best_effort or used is None:
                continue
            fresh = placed.latency_at_ms is not None and now_ms - placed.latency_at_ms < _LATENCY_FRESH_MS
            signals.append(
                LatencySignal(
                    pod=placed.plan.pod.key,
                    wait_ms_per_slice=used.wait_ms_per_slice,
                    slices=used.slices,
                    cpu_pressure_some=used.cpu_pressure_some,
                    latency_ms=placed.latency_ms if fresh else None,
                    target_ms=None if placed.plan.target is None else placed.plan.target.milliseconds,
                )
            )
        return signals

    def memory(self, policy: NodePolicy, usage: NodeUsage, *, frozen: bool) -> MemoryJudgement:
        """Pods that are only looked at neither leave nor count as leaving."""
        if not policy.enabled:
            return MemoryJudgement()
        best_effort = {uid: placed for uid, placed in self.pods.items() if placed.best_effort}
        looked_at = {
            uid: placed
            for uid, placed in best_effort.items()
            if frozen or policy.observe or placed.plan.pod.namespace in policy.observe_namespaces
        }
        acted_on = {uid: placed for uid, placed in best_effort.items() if uid not in looked_at}
        decision = self._victims(policy, usage, acted_on) if acted_on or not looked_at else None
        if not looked_at:
            return MemoryJudgement(decision)
        all_of_them = self._victims(policy, usage, best_effort)
        would = () if all_of_them is None else tuple(v.message for v in all_of_them.victims if v.uid in looked_at)
        return MemoryJudgement(decision, would)

    def _victims(self, policy: NodePolicy, usage: NodeUsage, pods: Mapping[str, Placed]) -> MemoryDecision | None:
        candidates = [
            Candidate(
                uid=uid,
                name=placed.plan.pod.key,
                priority=placed.plan.pod.priority_value,
                memory_bytes=used.memory_bytes if (used := usage.pods.get(uid)) is not None else None,
                leaving=placed.leaving,
            )
            for uid, placed in pods.items()
        ]
        return memory_victims(
            MemoryInputs(
                capacity_bytes=self.capacity_bytes,
                used_bytes=usage.memory_bytes,
                threshold_percent=policy.memory_threshold_percent,
                lower_percent=policy.memory_lower_percent,
                candidates=candidates,
            )
        )
