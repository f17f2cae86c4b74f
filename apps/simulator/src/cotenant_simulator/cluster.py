"""The whole system on one in-memory bus: every service, one agent per node, and whoever uses it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from cotenant_common.bus.memory_bus import MemoryServer
from cotenant_common.bus.protocol import Put
from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.messages.state import Heartbeat
from cotenant_common.model.ids import encode_token
from cotenant_common.runtime.clock import LoopClock
from cotenant_common.runtime.service import Service, ServiceContext
from cotenant_common.testing.context import EPOCH_MS
from cotenant_descheduler.app import DeschedulerService
from cotenant_gateway.app.operations import Operations
from cotenant_gateway.app.service import GatewayService
from cotenant_gateway.core.errors import ApiError
from cotenant_gateway.core.plan import Fault as ManifestFault
from cotenant_gateway.core.yaml_source import Document
from cotenant_profiler.app import ProfilerService
from cotenant_quota.app import QuotaService
from cotenant_scheduler.app import SchedulerService
from cotenant_simulator import loop
from cotenant_simulator.config import sealed
from cotenant_simulator.core.scenario import AGENT, BUS, SERVICES, Fault, ObjectRef
from cotenant_simulator.hosting import Hosted, Troubles
from cotenant_simulator.node.demands import Demands
from cotenant_simulator.node.host import NodeShape, SimulatedNode

Make = Callable[[ServiceContext, Any], Service]
_MAKERS: Final[Mapping[str, Make]] = {
    "gateway": GatewayService,
    "scheduler": SchedulerService,
    "quota": QuotaService,
    "profiler": ProfilerService,
    "descheduler": DeschedulerService,
}
_RETRY_S: Final = 0.5
_BOOT_TTL_S: Final = 10
_NOT_FOUND: Final = 404
_UNAVAILABLE: Final = 503


class RefusedError(Exception):
    """The gateway says that a manifest is wrong."""

    def __init__(self, fault: ManifestFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class Cluster:
    def __init__(self, overrides: Mapping[str, Mapping[str, Any]], seed: int, epoch_ms: int = EPOCH_MS) -> None:
        self.epoch_ms = epoch_ms
        """Wall time at which virtual time is 0."""
        self.clock = LoopClock(epoch_ms)
        self.server = MemoryServer(self.clock)
        self.troubles = Troubles(lambda: self.clock.now_ms() - epoch_ms)
        self.demands = Demands()
        self.nodes: dict[str, SimulatedNode] = {}
        self.hosts: dict[str, Hosted] = {}
        self._overrides = overrides
        self._seed = seed
        self._faults: list[Fault] = []

    def start(self) -> None:
        for name in SERVICES:
            self._host(name, partial(_make, _MAKERS[name], self._settings(name))).start()

    def _settings(self, name: str) -> Any:
        decided: dict[str, Mapping[str, Any]] = {
            "gateway": {
                "api_enabled": False,
                "runtime": "simulated",
                "mirror_json": False,
                "uid_seed": f"scenario-{self._seed}",
            },
            "scheduler": {"seed": self._seed},
        }
        return sealed(name)(**self._overrides.get(name, {}), **decided.get(name, {}))

    def _host(self, name: str, factory: Callable[[ServiceContext], Service]) -> Hosted:
        host = Hosted(name, self.server, self.clock, factory, self.troubles, self._faults_of_bus)
        self.hosts[name] = host
        for fault in self._faults:
            if fault.target == name:
                host.begin(fault)
        return host

    def _faults_of_bus(self) -> list[Fault]:
        return [fault for fault in self._faults if fault.service == BUS]

    # What users do

    async def apply(self, documents: Sequence[Document], shapes: Sequence[NodeShape]) -> None:
        """Machines first: a pod that comes with its node must not see a cluster without it. Raise RefusedError."""
        await self._apply(documents, dry_run=True)
        nodes = [document for document in documents if document.data.get("kind") == "Node"]
        if nodes:
            fresh = [shape for shape in shapes if shape.name not in self.nodes]
            for shape in fresh:
                self.boot(shape.name)
            await self._apply(nodes)
            for shape in fresh:
                self.start_agent(self.add_node(shape))
            await loop.current().quiet()
        others = [document for document in documents if document.data.get("kind") != "Node"]
        if others:
            await self._apply(others)

    async def _apply(self, documents: Sequence[Document], *, dry_run: bool = False) -> None:
        planned = await self._ask(lambda operations: operations.apply(documents, dry_run=dry_run))
        if planned.faults:
            raise RefusedError(planned.faults[0])

    def boot(self, name: str) -> None:
        """The machine is up before anybody names it, so its Node never looks dead."""
        beat = Heartbeat(node=name, agent_id="boot", at_ms=self.clock.now_ms())
        key = encode_token(name)
        self.server.store(buckets.HEARTBEATS).apply([Put(key, codec.encode(beat), ttl_s=_BOOT_TTL_S)])

    def add_node(self, shape: NodeShape) -> SimulatedNode:
        node = SimulatedNode(shape, self._overrides.get(AGENT, {}), self.demands, self.clock.now_ms)
        self.nodes[shape.name] = node
        return node

    def start_agent(self, node: SimulatedNode) -> None:
        settings = node.settings(sealed(AGENT))
        self._host(f"{AGENT}/{node.name}", lambda context: node.agent(context, settings)).start()

    async def remove(self, objects: Sequence[ObjectRef]) -> None:
        """What is not there any more is deleted already. Raise ApiError."""
        for one in objects:
            if one.kind == "Node" and one.name in self.nodes:
                self._power_off(one.name)
            await self._ask(partial(_delete, one))

    def _power_off(self, name: str) -> None:
        self.nodes.pop(name).power_off()
        self.hosts.pop(f"{AGENT}/{name}").crash()

    async def _ask(self, call: Callable[[Operations], Awaitable[Any]]) -> Any:
        """Users try again while the gateway is away. Raise ApiError."""
        while True:
            host = self.hosts["gateway"]
            if host.reachable and isinstance(host.service, GatewayService):
                try:
                    return await call(host.service.operations)
                except ApiError as error:
                    if error.status == _NOT_FOUND:
                        return None
                    if error.status != _UNAVAILABLE:
                        raise
            await asyncio.sleep(_RETRY_S)

    # What goes wrong

    def begin(self, fault: Fault) -> None:
        self._faults.append(fault)
        if fault.service == BUS:
            self._refresh()
        elif (host := self.hosts.get(fault.target)) is not None:
            host.begin(fault)

    def end(self, fault: Fault) -> None:
        self._faults = [one for one in self._faults if one is not fault]
        if fault.service == BUS:
            self._refresh()
        elif (host := self.hosts.get(fault.target)) is not None:
            host.end(fault)

    def _refresh(self) -> None:
        for host in self.hosts.values():
            host.refresh()

    def silence(self, node: str, *, begin: bool) -> None:
        if (host := self.hosts.get(f"{AGENT}/{node}")) is not None:
            host.silence(begin=begin)

    def settle(self) -> None:
        """Demands changed: whom the kernel kills for memory, it kills at once."""
        for node in self.nodes.values():
            node.machine.settle_memory()

    async def stop(self) -> None:
        for host in self.hosts.values():
            host.crash()
        await loop.current().quiet()


def _make(make: Make, settings: Any, context: ServiceContext) -> Service:
    return make(context, settings)


def _delete(one: ObjectRef, operations: Operations) -> Awaitable[Any]:
    return operations.delete(one.kind, one.namespace, one.name)
