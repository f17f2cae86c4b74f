"""Submit → running: a pod is applied, and the time until its process exists is taken."""

import asyncio
import os
import time
from typing import Any, Final

from cotenant.bench import rig
from cotenant.client import CotenantClient
from cotenant.workload import CommandSpec, manifest
from cotenant_common.model.qos import PriorityBand

_WARM_UP: Final = 2
_TIMEOUT_S: Final = 30.0


def measure(samples: int, say: rig.Say) -> dict[str, Any]:
    machine = rig.describe()
    with rig.own_stack(say) as running:
        found = asyncio.run(_submit_all(running, samples, say))
    figures = {
        "p50_ms": round(rig.percentile(found, 50), 1),
        "p99_ms": round(rig.percentile(found, 99), 1),
        "max_ms": round(max(found), 1),
        "samples": len(found),
    }
    return rig.result("startup", figures, machine, samples=samples)


async def _submit_all(running: rig.Running, samples: int, say: rig.Say) -> list[float]:
    found: list[float] = []
    async with CotenantClient(running.record.gateway_url, running.token()) as client:
        for index in range(-_WARM_UP, samples):
            elapsed_ms = await _submit(client, f"start-{index + _WARM_UP}")
            if index >= 0:
                found.append(elapsed_ms)
                say(f"{len(found)} of {samples} pods")
    return found


async def _submit(client: CotenantClient, name: str) -> float:
    """Milliseconds until the gateway shows the pod as running; the poll every 5 ms is part of the figure."""
    # The free band requests nothing: how soon an idle stack begins to sell batch resources is another figure.
    pod = manifest(CommandSpec(("/bin/sleep", "60"), name, band=PriorityBand.FREE, user_id=os.getuid()))
    started = time.perf_counter()
    await client.apply(pod)

    async def running() -> bool:
        found = await client.pod(name)
        return found is not None and found["phase"] in ("Running", "Succeeded", "Failed")

    await client.wait_for(running, timeout_s=_TIMEOUT_S, every_s=0.005)
    elapsed_ms = (time.perf_counter() - started) * 1000
    await client.delete("Pod", name)
    await client.wait_gone("Pod", name)
    return elapsed_ms
