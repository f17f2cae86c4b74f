"""Queues that are held and drained: their running pods go, as fast as disruption budgets and the gate's pace allow."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cotenant_common.model.quota.spec import StopPolicy
from cotenant_quota.core.pods import PodFacts
from cotenant_quota.core.tree_book import TreeBook


@dataclass(frozen=True, slots=True)
class Removal:
    """One request to the eviction gate."""

    pods: tuple[PodFacts, ...]
    quota: str


def drains(book: TreeBook, pods: Iterable[tuple[str, PodFacts]], apart: Collection[str] = ()) -> tuple[Removal, ...]:
    """Every pod of a drained queue, least important and newest first; a gang goes as one, since what is left of it
    would wait for the others in vain. Those in ``apart``, by uid, go alone: together they are more than may go at once.
    """
    single: list[Removal] = []
    gangs: dict[tuple[str, str, str], list[PodFacts]] = {}
    for quota, pod in sorted(pods, key=lambda entry: _order(entry[1])):
        if not pod.assigned or pod.leaving_until_ms is not None or book.policy(quota) is not StopPolicy.HOLD_AND_DRAIN:
            continue
        if pod.gang is None or pod.uid in apart:
            single.append(Removal((pod,), quota))
        else:
            gangs.setdefault((quota, pod.namespace, pod.gang.name), []).append(pod)
    return (*single, *(Removal(tuple(members), key[0]) for key, members in gangs.items()))


def _order(pod: PodFacts) -> tuple[int, int, int, str]:
    return pod.priority, pod.sub_priority, -pod.since_ms, pod.uid
