"""Resource names, their canonical integer units, and arithmetic on resource lists.

A resource list is a plain mapping from name to integer: CPU in milli-cores, batch and mid CPU in milli-cores (that is
how their quantities are published), memory in bytes, everything else in units. A missing key is *unset*, not zero.
"""

from collections.abc import Mapping
from typing import Final

from cotenant_common.model import quantity

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
BATCH_CPU: Final = "kubernetes.io/batch-cpu"
BATCH_MEMORY: Final = "kubernetes.io/batch-memory"
MID_CPU: Final = "kubernetes.io/mid-cpu"
MID_MEMORY: Final = "kubernetes.io/mid-memory"

RESOURCES_BY_BAND: Final[Mapping[str, Mapping[str, str]]] = {
    "prod": {CPU: CPU, MEMORY: MEMORY},
    "none": {CPU: CPU, MEMORY: MEMORY},
    "mid": {CPU: MID_CPU, MEMORY: MID_MEMORY},
    "batch": {CPU: BATCH_CPU, MEMORY: BATCH_MEMORY},
    "free": {},
}
NATIVE_OF: Final[Mapping[str, str]] = {
    BATCH_CPU: CPU,
    MID_CPU: CPU,
    BATCH_MEMORY: MEMORY,
    MID_MEMORY: MEMORY,
}

ResourceList = Mapping[str, int]


def parse(name: str, text: str | int) -> int:
    """Parse one entry of a Kubernetes resource list into its canonical unit. Raise QuantityError."""
    return quantity.cpu_milli(text) if name == CPU else quantity.whole(text)


def render(name: str, value: int) -> str:
    """Print a canonical value so that ``parse`` gives it back."""
    if name == CPU:
        return quantity.format_cpu(value)
    if name.endswith("memory") or name == "ephemeral-storage" or name.startswith("hugepages-"):
        return quantity.format_bytes(value)
    return str(value)


def describe(resources: ResourceList) -> str:
    """``cpu 2, memory 1Gi``, sorted by name: for messages."""
    return ", ".join(f"{name} {render(name, resources[name])}" for name in sorted(resources)) or "nothing"


def add(left: ResourceList, right: ResourceList) -> dict[str, int]:
    """Sum by name; a name that only one side holds keeps its value."""
    total = dict(left)
    for name, value in right.items():
        total[name] = total.get(name, 0) + value
    return total


def subtract(left: ResourceList, right: ResourceList) -> dict[str, int]:
    """Difference by name; may be negative, so that an overdraft stays visible."""
    rest = dict(left)
    for name, value in right.items():
        rest[name] = rest.get(name, 0) - value
    return rest


def maximum(left: ResourceList, right: ResourceList) -> dict[str, int]:
    """Element-wise maximum over all names."""
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in sorted({*left, *right})}


def shortfall(request: ResourceList, free: ResourceList) -> dict[str, int]:
    """What is missing, by name; empty when the request fits. A zero request asks for nothing."""
    return {
        name: value - free.get(name, 0)
        for name, value in sorted(request.items())
        if value > 0 and value > free.get(name, 0)
    }
