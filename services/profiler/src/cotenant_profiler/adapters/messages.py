"""Between the messages on the bus and what the core decides on."""

import json
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from cotenant_common.contracts.buckets import OVERCOMMIT
from cotenant_common.contracts.messages.events import Event
from cotenant_common.contracts.messages.state import (
    NodeInventory,
    OvercommitRecord,
    OvercommitTerm,
    PolicyRecord,
    SpecRecord,
)
from cotenant_common.contracts.messages.telemetry import NodeUsage, PodUsage
from cotenant_common.model import labels, resources
from cotenant_common.model.ids import encode_token, object_key
from cotenant_common.model.pod import parse_pod
from cotenant_common.model.qos import PriorityBand
from cotenant_common.model.quantity import QuantityError
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_common.runtime.events import event_id
from cotenant_profiler.core.facts import PodFacts
from cotenant_profiler.core.node import Machine, Offer
from cotenant_profiler.core.strategy import Strategy, strategy_of
from cotenant_profiler.core.usage import PodSample, Sample

_NORMALIZATION: Final = "node.koordinator.sh/cpu-normalization-ratio"


class Samples:
    """What a node's reports say. While it reports the very same pods, as a simulated node does, they are read once."""

    def __init__(self) -> None:
        self._reported: list[PodUsage] | None = None
        self._pods: Mapping[str, PodSample] = {}

    def read(self, usage: NodeUsage) -> Sample:
        """What was not measured is left out: it is not 0."""
        if usage.pods is not self._reported:
            self._reported = usage.pods
            self._pods = {
                pod.uid: PodSample(band_of(pod.band), _measured(pod.cpu_milli, pod.memory_bytes)) for pod in usage.pods
            }
        return Sample(
            at_ms=usage.at_ms,
            node=_measured(usage.usage.cpu_milli, usage.usage.memory_bytes),
            system=_measured(usage.system.cpu_milli, usage.system.memory_bytes),
            pods=self._pods,
        )


def _measured(cpu_milli: int | None, memory_bytes: int | None) -> dict[str, int]:
    return {name: value for name, value in ((CPU, cpu_milli), (MEMORY, memory_bytes)) if value is not None}


@lru_cache(maxsize=64)
def band_of(text: str) -> PriorityBand:
    """``koord-prod`` or ``prod``; anything else is in no band, and counts as high."""
    for name in (text, f"koord-{text}"):
        try:
            return PriorityBand(name)
        except ValueError:
            continue
    return PriorityBand.NONE


def pod_facts(spec: SpecRecord) -> PodFacts | None:
    """None when the pod has ended. Raise QuantityError for a manifest that validation should have refused."""
    if spec.terminal_ms is not None:
        return None
    pod = parse_pod(spec.manifest, uid=spec.uid, created_ms=spec.created_ms, deleting=spec.deletion is not None)
    return PodFacts(
        uid=pod.uid,
        band=pod.band,
        qos=pod.qos,
        request=_native(pod.requests),
        created_ms=pod.created_ms,
        deleting=pod.deleting,
    )


def _native(requests: Mapping[str, int]) -> dict[str, int]:
    """A mid pod asks for mid resources; on the node they are cores and bytes like any other."""
    native: dict[str, int] = {}
    for name, amount in requests.items():
        target = resources.NATIVE_OF.get(name, name)
        if target in (CPU, MEMORY):
            native[target] = native.get(target, 0) + amount
    return native


def machine_of(inventory: NodeInventory, spec: SpecRecord | None) -> Machine:
    """Inventory as measured, reservation and normalisation as annotated. Raise ValueError for a bad annotation."""
    metadata: Mapping[str, Any] = (spec.manifest.get("metadata") or {}) if spec else {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    return Machine(
        capacity=inventory.capacity,
        allocatable=inventory.allocatable,
        reservation=_reservation(annotations.get(labels.NODE_RESERVATION)),
        normalization_percent=_percent(annotations.get(_NORMALIZATION)),
    )


def _reservation(text: str | None) -> dict[str, int]:
    """A list of reserved CPUs counts by its length and overrides the quantity."""
    if not text:
        return {}
    try:
        written = json.loads(text, parse_float=str, parse_int=str)
        reserved = {
            name: resources.parse(name, amount)
            for name, amount in (written.get("resources") or {}).items()
            if name in (CPU, MEMORY)
        }
        cpus = str(written.get("reservedCPUs") or "")
        if cpus:
            reserved[CPU] = 1000 * _count_cpus(cpus)
    except (AttributeError, QuantityError, ValueError) as error:
        raise ValueError(f"{labels.NODE_RESERVATION}: expected resources and reservedCPUs, got {text!r}") from error
    return reserved


def _count_cpus(text: str) -> int:
    """CPUs in kernel list format, ``0-3,8``."""
    count = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count


def _percent(text: str | None) -> int | None:
    if not text:
        return None
    try:
        return int(Fraction(text) * 100)
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{_NORMALIZATION}: expected a ratio such as 1.20, got {text!r}") from error


def node_strategy(policy: PolicyRecord | None, inventory: NodeInventory) -> Strategy:
    """As the gateway rendered it; where it has not, the defaults for what the node's kernel can do."""
    if policy is None:
        return strategy_of({}, idle_class=inventory.idle_class)
    thresholds = policy.slo.get("resourceUsedThresholdWithBE")
    return strategy_of(policy.colocation, idle_class=inventory.idle_class, thresholds=thresholds)


def record_of(node: str, offer: Offer, *, metric_ms: int | None, now_ms: int) -> OvercommitRecord:
    return OvercommitRecord(
        node=node,
        batch=None if offer.batch is None else dict(offer.batch),
        mid=None if offer.mid is None else dict(offer.mid),
        terms=[
            OvercommitTerm(
                resource=term.resource,
                capacity=term.capacity,
                margin=term.margin,
                system=term.system,
                prod_used=term.prod_used,
                result=term.result,
                message=term.message,
            )
            for term in offer.terms
        ],
        degraded=offer.degraded,
        message=offer.message,
        metric_ms=metric_ms,
        computed_ms=now_ms,
    )


def same_offer(old: OvercommitRecord | None, new: OvercommitRecord) -> bool:
    """Whether a reader would learn nothing but a newer time."""
    return old is not None and (old.batch, old.mid, old.degraded) == (new.batch, new.mid, new.degraded)


def key_of(node: str) -> str:
    return encode_token(node)


def event_of(record: OvercommitRecord, revision: int, source: str) -> Event:
    """The event of one write, id included: telling it again gives the same one."""
    return Event(
        id=event_id(OVERCOMMIT, key_of(record.node), revision),
        type="capacity.changed",
        at_ms=record.computed_ms,
        source=source,
        object=object_key("Node", None, record.node),
        reason=record.degraded,
        message=record.message,
        data={"node": record.node, "batch": record.batch, "mid": record.mid, "degraded": record.degraded},
    )
