"""The four ways to have neighbours, behind one protocol."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cotenant.client import CotenantClient
from cotenant.demo.groups import ProcessGroups
from cotenant.demo.plan import Neighbour
from cotenant.demo.programs import NAMESPACE, Programs, neighbour_pod
from cotenant.errors import CotenantError, NotFoundError
from cotenant_agent.cgroup.files import DEFAULT_SHARES, MIN_SHARES, UNLIMITED, Knob
from cotenant_agent.cgroup.tree import CgroupTree
from cotenant_agent.core.usage import BE

_SETTLE_TIMEOUT_S: Final = 20.0
_ROOM_TIMEOUT_S: Final = 15.0
_GONE_TIMEOUT_S: Final = 20.0
_QUEUED: Final = "Queued"


@dataclass(frozen=True, slots=True)
class Admission:
    """How many neighbours run, how many wait, and what they may use together (None: nothing caps them)."""

    running: int = 0
    pending: int = 0
    cap_milli: int | None = None
    restarts: int = 0


class ArmDriver(Protocol):
    neighbours: Sequence[Neighbour]

    async def start(self, run: str) -> None:
        """Return when every neighbour runs or is known to wait. ``run`` names the counters of this segment."""

    async def stop(self) -> None:
        """Return when none is left. Stopping what never started is no error."""

    async def admission(self) -> Admission: ...


@dataclass(slots=True)
class NoNeighbours:
    neighbours: Sequence[Neighbour] = ()

    async def start(self, run: str) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def admission(self) -> Admission:
        return Admission()


@dataclass(slots=True)
class PlainNeighbours:
    """All of them at once. ``shares`` is their weight together; None is the smallest there is."""

    neighbours: Sequence[Neighbour]
    programs: Programs
    groups: ProcessGroups
    shares: int | None
    balloon_bytes: int
    at_most_s: float

    async def start(self, run: str) -> None:
        low = self.shares is None
        self.groups.weigh(
            MIN_SHARES if self.shares is None else self.shares, "weight of the demo's neighbours together"
        )
        for neighbour in self.neighbours:
            command = self.programs.neighbour_command(neighbour, run, self.balloon_bytes, self.at_most_s)
            await self.groups.start(neighbour.name, command, self.programs, low=low)

    async def stop(self) -> None:
        # Ending costs CPU too, and memory that is given back costs most: at the smallest weight it takes for ever.
        self.groups.weigh(DEFAULT_SHARES, "neighbours that have to end")
        await self.groups.stop()

    async def admission(self) -> Admission:
        return Admission(running=sum(process.returncode is None for process in self.groups.processes.values()))


@dataclass(slots=True)
class CotenantNeighbours:
    """Submitted as BE pods with batch resources; who runs is Cotenant's decision."""

    neighbours: Sequence[Neighbour]
    programs: Programs
    client: CotenantClient
    tree: CgroupTree | None
    node: str
    balloon_bytes: int
    explain: Callable[[dict[str, Any]], None]

    async def start(self, run: str) -> None:
        pods = [neighbour_pod(self.programs, neighbour, run, self.balloon_bytes) for neighbour in self.neighbours]
        refused = [result for result in await self.client.apply(pods) if result.get("action") == "refused"]
        if refused:
            raise CotenantError(f"the gateway refused {refused[0].get('name')}: {refused[0].get('errors')}")
        found = await self._decided(len(pods))
        await self._explain(found)

    async def _decided(self, count: int) -> list[dict[str, Any]]:
        """Every neighbour, once each runs or waits with a reason, and some run unless there is no room in time."""
        asked = time.monotonic()
        while True:
            found = await self._pods()
            passed_s = time.monotonic() - asked
            decided = len(found) == count and all(_is_decided(pod) for pod in found)
            if decided and (passed_s > _ROOM_TIMEOUT_S or any(pod["phase"] == "Running" for pod in found)):
                return found
            if passed_s > _SETTLE_TIMEOUT_S:
                states = ", ".join(f"{pod['name']} {pod['phase']} ({pod.get('message') or 'no word'})" for pod in found)
                raise CotenantError(f"after {_SETTLE_TIMEOUT_S:g} s not every neighbour runs or was refused: {states}")
            await asyncio.sleep(0.1)

    async def _explain(self, pods: Sequence[dict[str, Any]]) -> None:
        """Pass on what `cotenant explain` says of one that waits."""
        waiting = next((pod for pod in pods if pod["phase"] == "Pending"), None)
        if waiting is not None:
            self.explain({"name": waiting["name"], **await self.client.explain(waiting["name"], NAMESPACE)})

    async def _pods(self) -> list[dict[str, Any]]:
        names = {neighbour.name for neighbour in self.neighbours}
        return [pod for pod in await self.client.pods(NAMESPACE) if pod["name"] in names and pod["phase"] != "Deleted"]

    async def stop(self) -> None:
        for pod in await self._pods():
            try:
                await self.client.delete("Pod", pod["name"], NAMESPACE)
            except NotFoundError:
                continue  # ended by itself between the list and the delete
        for neighbour in self.neighbours:
            await self.client.wait_gone("Pod", neighbour.name, NAMESPACE, timeout_s=_GONE_TIMEOUT_S)

    async def admission(self) -> Admission:
        pods = await self._pods()
        return Admission(
            running=sum(pod["phase"] == "Running" for pod in pods),
            pending=sum(pod["phase"] == "Pending" for pod in pods),
            cap_milli=self._cap_milli(),
            restarts=sum(int(pod.get("restarts") or 0) for pod in pods),
        )

    def _cap_milli(self) -> int | None:
        quota = None if self.tree is None else self.tree.read(f"{self.node}/{BE}", Knob.CPU_QUOTA)
        return None if quota is None or quota == UNLIMITED else int(quota) // 100


def _is_decided(pod: dict[str, Any]) -> bool:
    """Runs, or waits for a reason of its own rather than for its turn."""
    return pod["phase"] != "Pending" or (pod.get("node") is None and pod.get("reason") not in (None, _QUEUED))
