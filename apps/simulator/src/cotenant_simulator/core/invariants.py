"""What must hold at every moment, whatever fails: plain data in, sentences about what is broken out."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cotenant_common.contracts.messages.state import Binding
from cotenant_common.model.resources import CPU, MEMORY, PODS, render

# What is sold a second time may shrink under pods that run; what a node really has may not be passed.
_HARD: Final = (CPU, MEMORY, PODS)


def bound_twice(bindings: Iterable[Binding]) -> list[str]:
    """One pod is on one node."""
    nodes: dict[str, list[str]] = {}
    for binding in bindings:
        nodes.setdefault(binding.uid, []).append(binding.node)
    return [
        f"pod {uid} is bound to {', '.join(sorted(where))}" for uid, where in sorted(nodes.items()) if len(where) > 1
    ]


def over_allocatable(charged: Iterable[Binding], allocatable: Mapping[str, Mapping[str, int]]) -> list[str]:
    """``charged`` are the bindings of pods that have not ended."""
    used: dict[str, dict[str, int]] = {}
    for binding in charged:
        sums = used.setdefault(binding.node, {})
        for name, amount in {**binding.requests, PODS: 1}.items():
            sums[name] = sums.get(name, 0) + amount
    return [
        f"node {node} holds {render(name, sums[name])} of {name}, it has {render(name, allocatable[node][name])}"
        for node, sums in sorted(used.items())
        for name in _HARD
        if node in allocatable and sums.get(name, 0) > allocatable[node].get(name, sums.get(name, 0))
    ]


def over_quota(charged: Iterable[Binding], limits: Mapping[str, Mapping[str, int]]) -> list[str]:
    """No quota's pods use more than its max. ``limits`` are the maxima; a dimension that is not named has none."""
    used: dict[str, dict[str, int]] = {}
    for binding in charged:
        for quota in binding.quota_chain or ([binding.quota] if binding.quota else []):
            sums = used.setdefault(quota, {})
            for name, amount in binding.requests.items():
                sums[name] = sums.get(name, 0) + amount
    return [
        f"quota {quota} uses {render(name, amount)} of {name}, its max is {render(name, limits[quota][name])}"
        for quota, sums in sorted(used.items())
        for name, amount in sorted(sums.items())
        if quota in limits and amount > limits[quota].get(name, amount)
    ]


def running_twice(running: Mapping[str, Iterable[str]]) -> list[str]:
    """Pod uids by node: the same incarnation never runs on two machines."""
    where: dict[str, list[str]] = {}
    for node, uids in sorted(running.items()):
        for uid in uids:
            where.setdefault(uid, []).append(node)
    return [f"pod {uid} runs on {', '.join(nodes)}" for uid, nodes in sorted(where.items()) if len(nodes) > 1]


def vanished(before: Iterable[str], now: Iterable[str], explained: Iterable[str]) -> list[str]:
    """Pods that were wanted and are not any more, without a ``pod.deleted`` that says why."""
    known = dict.fromkeys([*now, *explained])
    return [f"pod {name} is gone and nobody said why" for name in before if name not in known]


def unaccounted(pods: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Once all is well again, a pod that waits has a reason that somebody gave for it."""
    silent = ("Queued", "Bound")
    return [
        f"pod {name} waits ({pod['message']}) and nobody says why"
        for name, pod in pods.items()
        if pod["phase"] == "Pending" and pod["reason"] in silent
    ]


def drifted(believed: Mapping[str, Mapping[str, int]], real: Mapping[str, Mapping[str, int]]) -> list[str]:
    """What the scheduler thinks each quota uses, against what its bindings say."""
    return [
        f"quota {quota}: the scheduler believes {render(name, believed[quota].get(name, 0))} of {name} is used, "
        f"the bindings say {render(name, amount)}"
        for quota, amounts in sorted(real.items())
        for name, amount in sorted(amounts.items())
        if quota in believed and believed[quota].get(name, 0) != amount
    ]
