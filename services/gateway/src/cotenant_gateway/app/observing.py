"""What would be done where the system only looks, each number with the sum behind it."""

from typing import Any

from cotenant_common.contracts.messages.state import OvercommitRecord
from cotenant_common.contracts.messages.telemetry import NodeUsage
from cotenant_common.model.ids import encode_token
from cotenant_gateway.app.evictions import Evictions
from cotenant_gateway.app.world import World

Json = dict[str, Any]


def report(world: World, evictions: Evictions) -> Json:
    scope = world.observing()
    return {
        "scope": {
            "everything": scope.everything,
            "nodes": list(scope.nodes),
            "namespaces": list(scope.namespaces),
        },
        "nodes": [_node(world, name) for name in world.node_names()],
        "evictions": evictions.only_observed(),
    }


def _node(world: World, name: str) -> Json:
    policy, usage = world.policies.items.get(encode_token(name)), world.usage.get(name)
    return {
        "node": name,
        "observed": policy.observe if policy is not None else None,
        "frozen": policy.frozen if policy is not None else None,
        "reclaimable": _reclaimable(world.overcommit.items.get(encode_token(name))),
        "cap": _cap(usage),
        "would_evict": list(usage.would_evict) if usage is not None else [],
    }


def _reclaimable(record: OvercommitRecord | None) -> Json | None:
    if record is None:
        return None
    return {
        "batch": record.batch,
        "mid": record.mid,
        "message": record.message,
        "sums": [term.model_dump() for term in record.terms],
    }


def _cap(usage: NodeUsage | None) -> Json | None:
    """``would_be_milli`` None: best-effort work needs no limit now."""
    if usage is None:
        return None
    return {
        "would_be_milli": usage.be_wish_milli,
        "is_milli": usage.be_limit_milli,
        "used_milli": usage.be_usage_milli,
        "reason": usage.be_limit_reason,
        "message": usage.be_limit_message,
    }
