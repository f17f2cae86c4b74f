"""QoS classes, priority bands and the rules that tie them together (Koordinator's ``apis/extension``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cotenant_common.model import labels
from cotenant_common.model.resources import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, ResourceList


class QosClass(StrEnum):
    """How a node treats a pod. NONE is *unset*."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"
    NONE = ""


class PriorityBand(StrEnum):
    """Order in the queue and in eviction; NONE is any priority outside the bands."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    NONE = ""

    @property
    def short(self) -> str:
        """The key of ``RESOURCES_BY_BAND``: prod, mid, batch, free or none."""
        return self.value.removeprefix("koord-") or "none"


class KubernetesQos(StrEnum):
    """What Kubernetes derives from requests and limits."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


BANDS: Final[Mapping[PriorityBand, tuple[int, int]]] = {
    PriorityBand.PROD: (9000, 9999),
    PriorityBand.MID: (7000, 7999),
    PriorityBand.BATCH: (5000, 5999),
    PriorityBand.FREE: (3000, 3999),
}
DEFAULT_VALUE: Final[Mapping[PriorityBand, int]] = {
    PriorityBand.PROD: 9500,
    PriorityBand.MID: 7500,
    PriorityBand.BATCH: 5500,
    PriorityBand.FREE: 3500,
    PriorityBand.NONE: 0,
}
# The PriorityClass objects that ship with the system sit at the bottom of their band.
SHIPPED_PRIORITY_CLASSES: Final[Mapping[str, int]] = {
    "koord-prod": 9000,
    "koord-mid": 7000,
    "koord-batch": 5000,
    "koord-free": 3000,
}
_BAND_OF_QOS: Final[Mapping[QosClass, PriorityBand]] = {
    QosClass.SYSTEM: PriorityBand.PROD,
    QosClass.LSE: PriorityBand.PROD,
    QosClass.LSR: PriorityBand.PROD,
    QosClass.LS: PriorityBand.PROD,
    QosClass.BE: PriorityBand.BATCH,
    QosClass.NONE: PriorityBand.NONE,
}
# An agent asks this of every pod several times a second; calling the enum costs ten times as much.
_QOS_BY_LABEL: Final[Mapping[str, QosClass]] = {member.value: member for member in QosClass}
_QOS_OF_KUBERNETES: Final[Mapping[KubernetesQos, QosClass]] = {
    KubernetesQos.GUARANTEED: QosClass.LSR,
    KubernetesQos.BURSTABLE: QosClass.LS,
    KubernetesQos.BEST_EFFORT: QosClass.BE,
}


def band_of_value(value: int | None) -> PriorityBand:
    """The band that a numeric priority falls into; NONE when unset or in a gap."""
    if value is None:
        return PriorityBand.NONE
    for band, (low, high) in BANDS.items():
        if low <= value <= high:
            return band
    return PriorityBand.NONE


def raw_band(pod_labels: Mapping[str, str], priority: int | None) -> PriorityBand:
    """The label wins over the number, even when the label names no band at all."""
    named = pod_labels.get(labels.PRIORITY_CLASS)
    if named is None:
        return band_of_value(priority)
    try:
        return PriorityBand(named)
    except ValueError:
        return PriorityBand.NONE


def labelled_qos(pod_labels: Mapping[str, str]) -> QosClass:
    """Only what the label says; NONE when it is absent or unknown."""
    return _QOS_BY_LABEL.get(pod_labels.get(labels.QOS_CLASS, ""), QosClass.NONE)


def effective_qos(pod_labels: Mapping[str, str], kubernetes_qos: KubernetesQos) -> QosClass:
    """The label, else what the Kubernetes class implies (Guaranteed → LSR, Burstable → LS, BestEffort → BE)."""
    named = labelled_qos(pod_labels)
    return _QOS_OF_KUBERNETES[kubernetes_qos] if named is QosClass.NONE else named


def effective_band(pod_labels: Mapping[str, str], priority: int | None, kubernetes_qos: KubernetesQos) -> PriorityBand:
    """The raw band, else what the effective QoS implies."""
    raw = raw_band(pod_labels, priority)
    return _BAND_OF_QOS[effective_qos(pod_labels, kubernetes_qos)] if raw is PriorityBand.NONE else raw


def priority_value(band: PriorityBand, priority: int | None) -> int:
    """A non-zero number wins, else the default of the band."""
    return priority or DEFAULT_VALUE[band]


def sub_priority(pod_labels: Mapping[str, str]) -> int:
    """``koordinator.sh/priority``: order inside a band, any base Go's ParseInt accepts; 0 when absent or malformed."""
    text = pod_labels.get(labels.PRIORITY, "")
    try:
        value = int(text, 0)
    except ValueError:
        return 0
    return value if -(2**31) <= value < 2**31 else 0


def kubernetes_qos(containers: list[tuple[ResourceList, ResourceList]]) -> KubernetesQos:
    """Class from (requests, limits) of every container; only native CPU and memory count."""
    requested = limited = False
    guaranteed = True
    for requests, limits in containers:
        for name in (CPU, MEMORY):
            limit = limits.get(name, 0)
            request = requests.get(name, limit)
            requested |= request > 0
            limited |= limit > 0
            guaranteed &= limit > 0 and request == limit
    if not (requested or limited):
        return KubernetesQos.BEST_EFFORT
    return KubernetesQos.GUARANTEED if guaranteed else KubernetesQos.BURSTABLE


@dataclass(frozen=True, slots=True)
class Violation:
    """A forbidden combination: where, and what would be allowed."""

    field: str
    message: str


def check_combination(qos: QosClass, band: PriorityBand, requests: ResourceList) -> list[Violation]:
    """Koordinator's pod validating rules. ``qos`` is the label, ``band`` the *raw* band, ``requests`` of the pod."""
    found: list[Violation] = []
    if qos is QosClass.BE and band in (PriorityBand.NONE, PriorityBand.PROD):
        found.append(Violation("metadata.labels", _combination(qos, band, "mid, batch or free")))
    if qos is QosClass.LSR and band is not PriorityBand.PROD:
        found.append(Violation("metadata.labels", _combination(qos, band, "prod")))
    if qos is not QosClass.BE and (requests.get(BATCH_CPU) or requests.get(BATCH_MEMORY)):
        found.append(
            Violation("metadata.labels", f"a pod that requests batch resources must be {labels.QOS_CLASS}: BE")
        )
    if qos in (QosClass.LSE, QosClass.LSR):
        cpu = requests.get(CPU, 0)
        if cpu == 0 or cpu % 1000:
            found.append(Violation("spec.containers", f"QoS {qos} needs a whole number of CPUs, got {cpu} milli-cores"))
    return found


def _combination(qos: QosClass, band: PriorityBand, allowed: str) -> str:
    return f"QoS {qos} cannot have priority {band.value or 'none'}; allowed: {allowed}"
