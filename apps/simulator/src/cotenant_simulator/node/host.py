"""One simulated node: a machine that lasts, and an agent on it that may crash and come back."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cotenant_agent.adapters.ports import NodeFacts, NodePorts
from cotenant_agent.app import AgentService
from cotenant_agent.cgroup.journal import KnobJournal
from cotenant_agent.cgroup.writer import KnobWriter
from cotenant_agent.config import AgentSettings
from cotenant_agent.core.cpuset import format_cpuset
from cotenant_agent.core.suppress import Cpu
from cotenant_agent.testing import FakeLogs
from cotenant_common.model import labels, resources
from cotenant_common.model.resources import CPU, MEMORY, PODS
from cotenant_common.runtime.service import ServiceContext
from cotenant_simulator.node.demands import Demands
from cotenant_simulator.node.machine import Machine
from cotenant_simulator.node.runtime import SimulatedRuntime
from cotenant_simulator.node.sampler import SimulatedSampler

DEFAULT_PODS = 110
"""Kubernetes' own limit, for nodes that name none."""


class NodeShapeError(ValueError):
    """A Node that does not say what it has."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What a Node of a scenario has. ``allocatable`` never names what ``capacity`` lacks."""

    name: str
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    cpus: tuple[int, ...] = ()
    """Numbers of its CPUs, where they are not the first of the machine."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What its agent found, beside its name."""

    def reserved(self, resource: str) -> int:
        return max(0, self.capacity[resource] - self.allocatable[resource])


def read_shape(manifest: Mapping[str, Any]) -> NodeShape:
    """Raise NodeShapeError. Either list stands in for the other."""
    status = manifest.get("status") or {}
    lists = {
        field: {name: resources.parse(name, text) for name, text in (status.get(field) or {}).items()}
        for field in ("capacity", "allocatable")
    }
    capacity = {**lists["allocatable"], **lists["capacity"]}
    for name in (CPU, MEMORY):
        if name not in capacity:
            raise NodeShapeError(f"status.capacity.{name}", "required: a simulated node has what its Node says")
        if capacity[name] <= 0:
            raise NodeShapeError(f"status.capacity.{name}", "expected more than zero")
    capacity.setdefault(PODS, DEFAULT_PODS)
    return NodeShape(manifest["metadata"]["name"], capacity, {**capacity, **lists["allocatable"]})


class SimulatedNode:
    def __init__(
        self, shape: NodeShape, overrides: Mapping[str, Any], demands: Demands, now_ms: Callable[[], int]
    ) -> None:
        self.shape = shape
        numbers = shape.cpus or tuple(range(math.ceil(shape.capacity[CPU] / 1_000)))
        cpus = format_cpuset(numbers)
        self.machine = Machine(shape.name, shape.capacity[CPU], shape.capacity[MEMORY], cpus, demands, now_ms)
        self.runtime = SimulatedRuntime(self.machine, now_ms)
        self._sampler = SimulatedSampler(self.machine, demands, now_ms)
        self._journal = KnobJournal()
        self._overrides = overrides
        # Agents measure what is whole; what they cannot know of other resources is the Node's word.
        offered = {name: amount for name, amount in shape.allocatable.items() if name not in (CPU, MEMORY)}
        self._facts = NodeFacts(
            capacity={**offered, CPU: shape.capacity[CPU], MEMORY: shape.capacity[MEMORY]},
            cpus=tuple(Cpu(cpu, cpu // 2, 0, 0) for cpu in numbers),
            whole_machine=True,
            boot_id="simulated",
            kernel="simulated",
            runtime="simulated",
            labels={labels.HOSTNAME: shape.name, labels.OS: "linux", **shape.labels},
            capabilities={"level": "simulated"},
        )

    @property
    def name(self) -> str:
        return self.shape.name

    def agent(self, context: ServiceContext, settings: AgentSettings) -> AgentService:
        """A fresh agent on the same machine: the groups, the pods and the journal are as the last one left them."""
        return AgentService(context, settings, self.ports())

    def ports(self) -> NodePorts:
        tree = self.machine.tree
        return NodePorts(
            self._facts,
            tree,
            KnobWriter(tree, self._journal),
            self._sampler,
            self.runtime,
            FakeLogs(),
            self.runtime.read_plan,
        )

    def settings(self, settings: type[AgentSettings]) -> AgentSettings:
        defaults = {"signal_interval_ms": 1_000}
        return settings(
            **{
                **defaults,
                **self._overrides,
                "node": self.name,
                "reserved_cpu_milli": self.shape.reserved(CPU),
                "reserved_memory_bytes": self.shape.reserved(MEMORY),
            }
        )

    def power_off(self) -> None:
        self.runtime.power_off()
        self.machine.close()
