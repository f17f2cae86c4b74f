"""What there is to share out: nodes as measured, and what is sold of them a second time."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cotenant_common.contracts.messages.state import NodeInventory, OvercommitRecord, SpecRecord
from cotenant_common.model import resources
from cotenant_common.model.ids import decode_token
from cotenant_quota.core.profile import PoolNode

Inventories = Mapping[str, NodeInventory]
Sold = Mapping[str, OvercommitRecord]
Specs = Mapping[str, SpecRecord]
_LOST: Final = "Unknown"


def cluster_allocatable(nodes: Inventories, overcommit: Sold, specs: Specs) -> dict[str, int]:
    """Σ allocatable of all nodes, cordoned and silent ones included, and of what is sold of them a second time.

    A node that was deleted or given up for lost has no Node object, or one that says so: its inventory may stay behind,
    and what it had is nobody's to share.
    """
    total: dict[str, int] = {}
    for key, node, _ in _present(nodes, specs):
        total = resources.add(total, _allocatable(node, overcommit.get(key)))
    return total


def pool_nodes(nodes: Inventories, overcommit: Sold, specs: Specs) -> Iterable[PoolNode]:
    """Labels are those the agent reports, then those that users gave the Node object."""
    for key, node, spec in _present(nodes, specs):
        given = (spec.manifest.get("metadata") or {}).get("labels") or {}
        yield PoolNode({**node.labels, **given}, _allocatable(node, overcommit.get(key)), _schedulable(spec))


def _present(nodes: Inventories, specs: Specs) -> Iterable[tuple[str, NodeInventory, SpecRecord]]:
    for key in sorted(nodes):
        spec = specs.get(decode_token(key))
        if spec is not None and all(one.get("status") != _LOST for one in _ready_conditions(spec)):
            yield key, nodes[key], spec


def _allocatable(node: NodeInventory, sold: OvercommitRecord | None) -> dict[str, int]:
    total = dict(node.allocatable)
    if sold is not None:
        total = resources.add(total, _renamed("batch", sold.batch))
        total = resources.add(total, _renamed("mid", sold.mid))
    return total


def _renamed(band: str, sold: Mapping[str, int] | None) -> dict[str, int]:
    """The record says cpu and memory; quotas name what pods request."""
    names = resources.RESOURCES_BY_BAND[band]
    return {names.get(name, name): amount for name, amount in (sold or {}).items()}


def _schedulable(spec: SpecRecord) -> bool:
    """A node that nobody has judged yet is as good as its inventory."""
    cordoned = bool((spec.manifest.get("spec") or {}).get("unschedulable"))
    return not cordoned and all(one.get("status") == "True" for one in _ready_conditions(spec))


def _ready_conditions(spec: SpecRecord) -> list[Mapping[str, Any]]:
    conditions = (spec.manifest.get("status") or {}).get("conditions") or ()
    return [one for one in conditions if one.get("type") == "Ready"]
