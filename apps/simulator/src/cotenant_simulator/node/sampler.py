"""What the instruments of a simulated machine show to its agent."""

from collections.abc import Callable, Collection
from typing import Final

from cotenant_agent.core.usage import GroupCounters, NodeCounters
from cotenant_simulator.node.demands import Demands
from cotenant_simulator.node.machine import Machine, PodRate

_NOTHING: Final = GroupCounters()


class SimulatedSampler:
    """A system whose use the scenario never set is not measured, and so the whole node is not either."""

    cost_us = 0

    def __init__(self, machine: Machine, demands: Demands, now_ms: Callable[[], int]) -> None:
        self._machine = machine
        self._demands = demands
        self._now_ms = now_ms
        self._pods: dict[str, bool] = {}
        self._groups: dict[str, str] = {}

    def track_group(self, name: str, group: str) -> None:
        self._groups[name] = group

    def track_pod(self, uid: str, group: str, *, latency_sensitive: bool) -> None:  # noqa: ARG002 - known already
        self._pods[uid] = latency_sensitive

    def untrack_pod(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def sample(self) -> NodeCounters:
        machine = self._machine
        machine.advance()
        machine.settle_memory()
        rates, system = machine.rates, machine.system_demand
        cpu_us = machine.system.cpu_us + sum(totals.cpu_us for totals in machine.groups.values())
        return NodeCounters(
            at_us=self._now_ms() * 1_000,
            cpu_us=None if system.cpu_milli is None else int(cpu_us),
            memory_bytes=None if system.memory_bytes is None else machine.used_bytes(),
            cpu_pressure_some=rates.pressure,
            memory_pressure_some=rates.memory_pressure,
            io_pressure_some=0.0,
            pods={uid: self._of_pod(rates.pods.get(uid), sensitive) for uid, sensitive in self._pods.items()},
            groups={name: self._of_group(name, rates.memory[name]) for name in self._groups},
        )

    def sample_pods(self, uids: Collection[str]) -> NodeCounters:
        self._machine.advance()
        pods = self._machine.rates.pods
        found = {uid: self._of_pod(pods.get(uid), self._pods.get(uid, False)) for uid in uids}
        return NodeCounters(at_us=self._now_ms() * 1_000, pods=found)

    @staticmethod
    def _of_pod(rate: PodRate | None, sensitive: bool) -> GroupCounters:
        """A pod that has a group and runs nothing yet is not measured."""
        if rate is None:
            return _NOTHING
        totals, demand = rate.tenant.totals, rate.demand
        return GroupCounters(
            cpu_us=None if demand.cpu_milli is None else int(totals.cpu_us),
            memory_bytes=demand.memory_bytes,
            periods=int(totals.periods),
            throttled_periods=int(totals.throttled_periods),
            run_us=int(totals.cpu_us) if sensitive else None,
            wait_us=int(totals.wait_us) if sensitive else None,
            slices=int(totals.slices // 1_000) if sensitive else None,
            cpu_pressure_some=rate.pressure if sensitive else None,
            memory_pressure_some=rate.memory_pressure,
        )

    def _of_group(self, name: str, memory_bytes: int) -> GroupCounters:
        totals = self._machine.groups[name]
        return GroupCounters(
            cpu_us=int(totals.cpu_us),
            memory_bytes=memory_bytes,
            periods=int(totals.periods),
            throttled_periods=int(totals.throttled_periods),
        )

    def close(self) -> None:
        """Nothing is held open."""
