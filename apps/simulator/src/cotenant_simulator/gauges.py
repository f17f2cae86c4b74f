"""A scenario with instruments on its machines: who got how much CPU, twice a virtual second."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant_agent.cgroup.files import UNLIMITED, Knob
from cotenant_agent.core.usage import BE
from cotenant_simulator import loop
from cotenant_simulator.cluster import Cluster
from cotenant_simulator.core.scenario import Scenario
from cotenant_simulator.driver import Driver
from cotenant_simulator.node.host import SimulatedNode

EVERY_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Sample:
    """One node at one instant. CPU in milli-cores; ``pods`` by ``namespace/name``; ``be_cap_milli`` None: no cap."""

    node: str
    t_ms: int
    capacity_milli: int
    busy_milli: float
    system_milli: float
    pods: dict[str, float] = field(default_factory=dict)
    held: int = 0
    """Pods on the node, those that wait for a restart included."""
    be_cap_milli: int | None = None


def run_gauged(scenario: Scenario) -> tuple[dict[str, Any], list[Sample]]:
    """The outcome, and samples of every node over the whole time."""
    return loop.run(_run(scenario))


async def _run(scenario: Scenario) -> tuple[dict[str, Any], list[Sample]]:
    cluster = Cluster(scenario.overrides, scenario.seed)
    samples: list[Sample] = []
    with cluster.troubles.catching_all():
        driver = Driver(scenario, cluster)
        driver.look_every(EVERY_MS, lambda: samples.extend(_read(cluster)), lambda _: None)
        outcome = await driver.run()
    return outcome, samples


def _read(cluster: Cluster) -> Sequence[Sample]:
    t_ms = cluster.clock.now_ms() - cluster.epoch_ms
    return [_sample(node, t_ms) for _, node in sorted(cluster.nodes.items())]


def _sample(node: SimulatedNode, t_ms: int) -> Sample:
    machine = node.machine
    rates = machine.rates
    cap = machine.tree.read(f"{node.name}/{BE}", Knob.CPU_QUOTA)
    return Sample(
        node=node.name,
        t_ms=t_ms,
        capacity_milli=machine.cpu_milli,
        busy_milli=machine.used_milli(),
        system_milli=rates.system_milli,
        pods={rate.tenant.key: rate.given_milli for rate in rates.pods.values()},
        held=len(dict.fromkeys(state.uid for state in node.runtime.containers())),
        be_cap_milli=None if cap is None or cap == UNLIMITED else int(cap) // 100,
    )
