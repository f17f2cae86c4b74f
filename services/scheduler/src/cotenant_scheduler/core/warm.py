"""Have the kernel compiled, or read from disk, before the first decision needs it."""

from cotenant_common.model.resources import CPU, MEMORY, PODS
from cotenant_scheduler.core.engine import Engine
from cotenant_scheduler.core.estimate import Estimate
from cotenant_scheduler.core.plugins.registry import default_plugins
from cotenant_scheduler.core.request import PodRequest, Shape
from cotenant_scheduler.core.snapshot import NodeFacts


def warm() -> bool:
    """Place one made-up pod; blocks for half a second, for some seconds the first time on a machine.

    False when numba is not installed: the plugins then do the work themselves.
    """
    engine = Engine(default_plugins(), fused=True)
    amounts = {CPU: 1000, MEMORY: 1 << 30, PODS: 10}
    engine.set_node(NodeFacts("n", allocatable=amounts))
    for index in range(2):
        shape = Shape(requests=((CPU, 1), (MEMORY, 1), (PODS, 1)), estimate=Estimate((1, 1)), is_prod=False)
        engine.submit(PodRequest(f"u{index}", "n", f"p{index}", shape, 0, 0, 0, 0, ""))
        engine.decide(0)
    return engine.fused
