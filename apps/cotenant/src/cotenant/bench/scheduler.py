"""How fast the scheduling core decides, without a bus."""

from typing import Any

from cotenant.bench import rig
from cotenant_scheduler import bench


def measure(nodes: int, pods: int, *, noisy: bool) -> dict[str, Any]:
    machine = rig.describe()
    figures = bench.run(nodes, pods, noisy=noisy)
    return rig.result("scheduler", figures, machine, nodes=nodes, pods=pods, noisy=noisy)
