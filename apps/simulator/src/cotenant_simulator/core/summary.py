"""The figures of a run: what was used, who waited, what was lost. None is *not known* or *nothing to measure*, never 0.

Times of events are exact. Integrals over time come from the grid of ``accounts``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

from cotenant_common.model.resources import CPU, MEMORY

Json = dict[str, Any]
Events = Sequence[Mapping[str, Any]]

BANDS: Final = ("prod", "mid", "batch", "free")
CLASSES: Final = (*BANDS, "system")
BATCH_BANDS: Final = ("batch", "free")
RESOURCES: Final = (CPU, MEMORY)
_MS_PER_MINUTE: Final = 60_000
_MS_PER_HOUR: Final = 3_600_000
_LOST: Final = ("pod.evicted", "pod.restarted", "pod.rejected")


@dataclass(frozen=True, slots=True)
class PodFacts:
    """``duration_ms`` is what ``cotenant.io/sim-duration`` says; None: it never ends by itself."""

    band: str
    duration_ms: int | None = None

    @property
    def batch(self) -> bool:
        return self.band in BATCH_BANDS


@dataclass(frozen=True, slots=True)
class RunOfPod:
    """One stay on one machine. ``ended_ms`` None: it still runs. Work in milli-cores times milliseconds."""

    key: str
    facts: PodFacts
    started_ms: int
    ended_ms: int | None
    work: float


@dataclass(frozen=True, slots=True)
class Wait:
    """From queued to bound; ``bound_ms`` None: it never was."""

    key: str
    queued_ms: int
    bound_ms: int | None
    left_ms: int | None = None
    """When it stopped waiting without a node."""

    @property
    def end_ms(self) -> int | None:
        return self.left_ms if self.bound_ms is None else self.bound_ms


@dataclass(slots=True)
class Integrals:
    """Sums of amount times milliseconds. ``used`` lacks what nobody knew."""

    used: dict[str, dict[str, float]] = field(default_factory=lambda: {name: {} for name in RESOURCES})
    """By resource and class."""
    capacity: dict[str, float] = field(default_factory=lambda: dict.fromkeys(RESOURCES, 0.0))
    pressure_ms: float = 0.0
    nodes_used_ms: float = 0.0
    nodes_used_max: int = 0
    lent_milli_ms: float | None = None
    runs: Sequence[RunOfPod] = ()
    cell_ms: int = 1_000


def waits(events: Events) -> list[Wait]:
    """One for each time a pod was queued, in that order. What is bound in the instant it was queued did not wait."""
    found: list[Wait] = []
    open_: dict[str, int] = {}
    for event in sorted(events, key=_in_order):
        key, t_ms = _key(event), event["t_ms"]
        if event["type"] == "pod.queued":
            open_[key] = len(found)
            found.append(Wait(key, t_ms, None))
        elif event["type"] in ("pod.bound", "pod.deleted", "pod.finished") and key in open_:
            at = open_.pop(key)
            bound = event["type"] == "pod.bound"
            found[at] = Wait(key, found[at].queued_ms, t_ms if bound else None, None if bound else t_ms)
    return found


_ORDER: Final = {"pod.finished": 0, "pod.deleted": 0, "pod.queued": 1}


def _in_order(event: Mapping[str, Any]) -> tuple[int, int]:
    """Several services write into one stream: of one instant, what had to come first may stand second."""
    return event["t_ms"], _ORDER.get(event["type"], 2)


def _key(event: Mapping[str, Any]) -> str:
    return str(event["object"]).partition("/")[2]


def nearest_rank(ordered: Sequence[float], percent: int) -> float | None:
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)] if ordered else None


def summarise(sums: Integrals, events: Events, facts: Mapping[str, PodFacts], unfinished: Iterable[str]) -> Json:
    """``facts`` by ``namespace/name``; ``unfinished`` are pods that neither succeeded nor are gone."""
    delays = _delays(events, facts)
    evicted = [event for event in events if event["type"] == "pod.evicted"]
    return {
        "utilisation_percent": {name: _utilisation(sums, name) for name in RESOURCES},
        "nodes_used_max": sums.nodes_used_max if sums.capacity[CPU] else None,
        "node_hours_used": _rounded(sums.nodes_used_ms / _MS_PER_HOUR) if sums.capacity[CPU] else None,
        "pressure_minutes": _rounded(sums.pressure_ms / _MS_PER_MINUTE) if sums.capacity[CPU] else None,
        "waiting": _waiting(events, facts),
        "batch_work": _work(sums, events),
        "batch_delay": _spread([delay for delay, _ in delays]),
        "batch_slowdown_mean": _mean([slowdown for _, slowdown in delays]),
        "unfinished_pods": sum(1 for key in unfinished if key in facts and facts[key].duration_ms is not None),
        "evictions": {
            "total": len(evicted),
            "by_reason": dict(sorted(Counter(event["reason"] or "none" for event in evicted).items())),
        },
        "preemptions": sum((event["data"] or {}).get("kind") == "preempt" for event in evicted),
        "quota_lent_core_minutes": (
            None if sums.lent_milli_ms is None else _rounded(sums.lent_milli_ms / 1_000 / _MS_PER_MINUTE)
        ),
    }


def _utilisation(sums: Integrals, resource: str) -> Json:
    whole, used = sums.capacity[resource], sums.used[resource]
    if not whole:
        return dict.fromkeys((*CLASSES, "total"))
    shares: Json = {name: _rounded(100 * used[name] / whole) if name in used else None for name in CLASSES}
    return shares | {"total": _rounded(100 * sum(used.values()) / whole) if used else None}


def _waiting(events: Events, facts: Mapping[str, PodFacts]) -> Json:
    found = waits(events)
    named = {name: [one for one in found if _band(facts, one.key) == name] for name in BANDS}
    return {name: _waiting_of(members) for name, members in (named | {"all": found}).items()}


def _band(facts: Mapping[str, PodFacts], key: str) -> str | None:
    return facts[key].band if key in facts else None


def _waiting_of(members: Sequence[Wait]) -> Json:
    lengths_s = sorted((one.bound_ms - one.queued_ms) / 1_000 for one in members if one.bound_ms is not None)
    return {
        **_spread(lengths_s),
        "max_s": _rounded(lengths_s[-1]) if lengths_s else None,
        "never_bound": len(members) - len(lengths_s),
    }


def _spread(values_s: Iterable[float]) -> Json:
    ordered = sorted(values_s)
    return {
        "count": len(ordered),
        "mean_s": _mean(ordered),
        "p50_s": _rounded(nearest_rank(ordered, 50)),
        "p95_s": _rounded(nearest_rank(ordered, 95)),
    }


def _mean(values: Sequence[float]) -> float | None:
    return _rounded(sum(values) / len(values)) if values else None


def _delays(events: Events, facts: Mapping[str, PodFacts]) -> list[tuple[float, float]]:
    """(finish − arrival − duration in seconds, (finish − arrival) / duration) of each batch pod that completed."""
    arrived: dict[str, int] = {}
    found = []
    for event in events:
        key = _key(event)
        if event["type"] == "pod.queued":
            arrived.setdefault(key, event["t_ms"])
        elif completed(event) and key in arrived:
            one = facts.get(key)
            if one is not None and one.batch and one.duration_ms:
                took_ms = event["t_ms"] - arrived.pop(key)
                found.append(((took_ms - one.duration_ms) / 1_000, took_ms / one.duration_ms))
    return found


def completed(event: Mapping[str, Any]) -> bool:
    """An eviction finishes a pod, too; only success is the end of its work."""
    return bool(event["type"] == "pod.finished" and (event["data"] or {}).get("phase") == "Succeeded")


def _work(sums: Integrals, events: Events) -> Json:
    runs = [run for run in sums.runs if run.facts.batch]
    if not sums.capacity[CPU]:
        return {"done_cpu_milli_s": None, "wasted_cpu_milli_s": None}
    lost: dict[str, list[tuple[int, bool]]] = {}
    for event in events:
        if event["type"] == "pod.finished" or event["type"] in _LOST:
            lost.setdefault(_key(event), []).append((event["t_ms"], completed(event)))
    return {
        "done_cpu_milli_s": _rounded(sum(run.work for run in runs) / 1_000),
        "wasted_cpu_milli_s": _rounded(
            sum(run.work for run in runs if _wasted(run, lost.get(run.key, ()), sums.cell_ms)) / 1_000
        ),
    }


def _wasted(run: RunOfPod, said: Iterable[tuple[int, bool]], cell_ms: int) -> bool:
    """It ended, something that loses work happened to it, and it had not completed. What users delete is not lost."""
    if run.ended_ms is None:
        return False
    during = [completed for t_ms, completed in said if run.started_ms < t_ms <= run.ended_ms + cell_ms]
    return bool(during) and not any(during)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def flattened(summary: Mapping[str, Any], prefix: str = "") -> dict[str, float | None]:
    """By dotted name, such as ``waiting.batch.p95_s``."""
    found: dict[str, float | None] = {}
    for name, value in summary.items():
        if isinstance(value, Mapping):
            found |= flattened(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


FIGURES: Final = tuple(flattened(summarise(Integrals(), (), {}, ())))
"""All names but those of reasons, which stand under BY_REASON."""
BY_REASON: Final = "evictions.by_reason."


def figure(summary: Mapping[str, Any], name: str) -> float | None:
    """A reason that nobody was evicted for was counted, too: 0."""
    return flattened(summary).get(name, 0 if name.startswith(BY_REASON) else None)
