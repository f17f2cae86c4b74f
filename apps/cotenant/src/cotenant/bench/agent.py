"""What the agent alone costs with many pods on its node, measured once a second."""

import asyncio
import os
import time
from typing import Any, Final

from cotenant.bench import rig, usage
from cotenant.client import CotenantClient
from cotenant.workload import CommandSpec, manifest
from cotenant_common.model.qos import PriorityBand

_SETTLE_S: Final = 5.0
_TIMEOUT_S: Final = 120.0


def measure(pods: int, seconds: int, say: rig.Say) -> dict[str, Any]:
    machine = rig.describe()
    # One process per service, so that the agent's CPU time is its own.
    with rig.own_stack(say, processes=True) as running:
        asyncio.run(_start(running, pods, say))
        say("letting it settle")
        time.sleep(_SETTLE_S)
        agent = next(service for service in running.record.services if service.name == "agent")
        say(f"measuring for {seconds} s")
        found = usage.over([agent.process.pid], seconds)
    figures = {
        "cpu_percent_of_one_core": round(found.cpu_percent, 2),
        "resident_mib": round(found.resident_bytes / 2**20, 1),
        "pods": pods,
    }
    return rig.result("agent", figures, machine, pods=pods, seconds=seconds)


async def _start(running: rig.Running, pods: int, say: rig.Say) -> None:
    manifests = [
        manifest(CommandSpec(("/bin/sleep", "3600"), f"agent-{at}", band=PriorityBand.FREE, user_id=os.getuid()))
        for at in range(pods)
    ]
    async with CotenantClient(running.record.gateway_url, running.token()) as client:
        if manifests:
            await client.apply(manifests)

        async def all_running() -> bool:
            count = sum(1 for pod in await client.pods() if pod["phase"] == "Running")
            say(f"{count} of {pods} pods run")
            return count == pods

        await client.wait_for(all_running, timeout_s=_TIMEOUT_S, every_s=0.3)
