"""What a stack costs that has nothing to do."""

import time
from typing import Any, Final

from cotenant.bench import rig, usage

_SETTLE_S: Final = 8.0
"""First snapshots and the one full collection are over; a running stack lives far longer than this."""


def measure(seconds: int, say: rig.Say) -> dict[str, Any]:
    machine = rig.describe()
    with rig.own_stack(say) as running:
        say("letting it settle")
        time.sleep(_SETTLE_S)
        say(f"measuring for {seconds} s")
        found = usage.over(running.pids(), seconds)
        nats = running.record.nats
        figures = {
            "resident_mib": round(found.resident_bytes / 2**20, 1),
            "nats_server_mib": round(usage.resident_bytes(nats.pid) / 2**20, 1) if nats else None,
            "cpu_percent_of_one_core": round(found.cpu_percent, 2),
        }
    return rig.result("idle", figures, machine, seconds=seconds)


def measure_each(seconds: int, say: rig.Say) -> dict[str, Any]:
    """Every service in a process of its own, as containers and units run them. Figures by process."""
    machine = rig.describe()
    with rig.own_stack(say, processes=True) as running:
        say("letting it settle")
        time.sleep(_SETTLE_S)
        say(f"measuring for {seconds} s")
        pids = {service.name: service.process.pid for service in running.record.services}
        if running.record.nats is not None:
            pids["nats-server"] = running.record.nats.pid
        found = usage.each(pids, seconds)
    figures: dict[str, Any] = {}
    for name, used in found.items():
        figures[f"{name}_mib"] = round(used.resident_bytes / 2**20, 1)
        figures[f"{name}_cpu_percent"] = round(used.cpu_percent, 2)
    return rig.result("idle", figures, machine, seconds=seconds, processes=True)
