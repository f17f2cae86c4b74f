"""What a change would do: the outcome without it and with it, side by side."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]

_PLACED: Final = ("Running", "Succeeded")
_GONE: Final = ("Deleted",)
_REMOVALS: Final = ("pod.preempted", "pod.evicted", "pod.deleted", "pod.finished")
"""The first of these that tells of a pod says why it left."""
_SHARES: Final = ("min", "max", "runtime", "used", "request")


@dataclass(frozen=True, slots=True)
class Looks:
    """Two outcomes, the events between them, and the pods that the change names or makes.

    Times of events count from the start of the simulation; ``changed_ms`` is when the change was made.
    """

    before: Json
    after: Json
    changed_ms: int
    named: Collection[str] = ()

    def events(self) -> list[Json]:
        return [event for event in self.after["events"] if event["t_ms"] >= self.changed_ms]


def difference(looks: Looks) -> Json:
    """Pods by what becomes of them, quotas and nodes by what changes; ``hot`` are nodes, whoever made them so."""
    story = _Story(looks.events(), looks.changed_ms)
    found: dict[str, list[Json]] = {
        name: [] for name in ("lands", "does_not_fit", "moves", "restarts", "goes", "fails", "waits", "stays")
    }
    before, after = looks.before["pods"], looks.after["pods"]
    for name in sorted({*before, *after}):
        fate, row = _fate(name, before.get(name), after.get(name), story, named=name in looks.named)
        if fate:
            found[fate].append({"pod": name, **row})
    return {
        **found,
        "quotas": _quotas(looks.before["quotas"], looks.after["quotas"]),
        "nodes": _nodes(looks.before["nodes"], looks.after["nodes"]),
        "hot": [name for name, node in sorted(looks.after["nodes"].items()) if node["classification"] == "hot"],
    }


class _Story:
    """What the events say of each pod."""

    def __init__(self, events: Sequence[Json], changed_ms: int) -> None:
        self._changed_ms = changed_ms
        self._of: dict[str, list[Json]] = {}
        for event in events:
            kind, _, name = event["object"].partition("/")
            if kind == "Pod":
                self._of.setdefault(name, []).append(event)

    def after_ms(self, pod: str, kind: str) -> int | None:
        """How long after the change the newest such event came."""
        times = [event["t_ms"] for event in self._of.get(pod, ()) if event["type"] == kind]
        return times[-1] - self._changed_ms if times else None

    def why_it_left(self, pod: str) -> Json:
        told = self._of.get(pod, [])
        for kind in _REMOVALS:
            for event in told:
                if event["type"] == kind:
                    return {"what": kind, "reason": event["reason"], "message": event["message"]}
        return {"what": None, "reason": None, "message": None}


def _fate(name: str, before: Json | None, after: Json | None, story: _Story, *, named: bool) -> tuple[str | None, Json]:
    """One word of ``difference`` and its row; None for what was over before."""
    if after is None or after["phase"] in _GONE:
        return ("goes", _left(before, name, story)) if before and before["phase"] not in _GONE else (None, {})
    if before is None or before["phase"] != "Running":
        return _fate_of_new(name, before, after, story, named=named)
    if after["phase"] == "Failed":
        return "fails", _left(before, name, story) | _why(after)
    if after["phase"] not in _PLACED:
        return "does_not_fit", {**_left(before, name, story), **_why(after), "ran_on": before["node"]}
    if after["node"] != before["node"]:
        return "moves", {"from": before["node"], "to": after["node"], **story.why_it_left(name)}
    if after["incarnation"] != before["incarnation"]:
        return "restarts", {"node": after["node"], **story.why_it_left(name)}
    return "stays", {"node": after["node"]}


def _fate_of_new(name: str, before: Json | None, after: Json, story: _Story, *, named: bool) -> tuple[str | None, Json]:
    """It did not run before: not there at all, waiting, or over."""
    if after["phase"] in _PLACED:
        if before is not None and before["phase"] in _PLACED:
            return None, {}
        place = {"node": after["node"], "after_ms": story.after_ms(name, "pod.bound"), "waited": before is not None}
        return "lands", place | {key: after[key] for key in ("quota", "reservation", "cpuset", "qos")}
    if after["phase"] == "Failed":
        return ("fails", _why(after)) if before is None else (None, {})
    if before is None or named:
        return "does_not_fit", {**_why(after), "ran_on": None}
    return "waits", _why(after)


def _why(pod: Json) -> Json:
    return {"reason": pod["reason"], "message": pod["message"]}


def _left(before: Json, name: str, story: _Story) -> Json:
    return {"node": before["node"], **story.why_it_left(name)}


def _quotas(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[Json]:
    """One row per quota and resource of which anything changes."""
    rows = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, {}), after.get(name, {})
        resources = {key for side in (old, new) for share in _SHARES for key in side.get(share) or {}}
        for resource in sorted(resources):
            pairs = {share: [_amount(old, share, resource), _amount(new, share, resource)] for share in _SHARES}
            if any(was != is_now for was, is_now in pairs.values()):
                rows.append({"quota": name, "resource": resource, **pairs})
    return rows


def _amount(side: Mapping[str, Any], share: str, resource: str) -> int | None:
    amount: int | None = (side.get(share) or {}).get(resource)
    return amount


def _nodes(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[Json]:
    """Nodes of which something changes; ``[before, after]`` each."""
    rows = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        pairs = {
            "batch_cpu": [_batch(old, "cpu"), _batch(new, "cpu")],
            "batch_memory": [_batch(old, "memory"), _batch(new, "memory")],
            "requested": [_of(old, "requested"), _of(new, "requested")],
            "usage": [_of(old, "usage"), _of(new, "usage")],
            "heat": [_of(old, "classification"), _of(new, "classification")],
        }
        if any(was != is_now for was, is_now in pairs.values()):
            rows.append({"node": name, **pairs})
    return rows


def _of(side: Json | None, key: str) -> Any:
    return None if side is None else side[key]


def _batch(side: Json | None, resource: str) -> int | None:
    return None if side is None else side["batch"][resource]
