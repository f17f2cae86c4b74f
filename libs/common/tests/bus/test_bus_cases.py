"""One set of promises, two buses."""

import pytest

from cotenant_common.bus.nats_bus import NatsBus, connect
from cotenant_common.bus.protocol import Bus
from cotenant_common.testing.bus_cases import CASES
from cotenant_common.testing.context import memory_server
from cotenant_common.testing.nats_server import NatsServer, find_nats_server
from cotenant_common.testing.virtual_loop import run


class MemoryWorld:
    def __init__(self) -> None:
        self._server = memory_server()

    async def connect(self, name: str) -> Bus:
        return self._server.connect(name)


class NatsWorld:
    def __init__(self, server: NatsServer) -> None:
        self._server = server
        self._buses: list[NatsBus] = []

    async def connect(self, name: str) -> Bus:
        bus = await connect([self._server.url], name=name, timeout_s=30)
        self._buses.append(bus)
        return bus

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()


@pytest.mark.parametrize("name", CASES)
def test_memory_bus(name: str) -> None:
    async def main() -> None:
        await CASES[name](MemoryWorld())

    run(main())


@pytest.mark.integration
@pytest.mark.skipif(find_nats_server() is None, reason="no nats-server binary on this machine")
@pytest.mark.parametrize("name", CASES)
async def test_real_nats(name: str) -> None:
    async with NatsServer() as server:
        world = NatsWorld(server)
        try:
            await CASES[name](world)
        finally:
            await world.close()
