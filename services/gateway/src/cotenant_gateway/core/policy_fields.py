"""Every field of the node policy: Koordinator's name and number, ours, and why ours differs."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Final

Path = tuple[str, ...]


class Profile(StrEnum):
    """One setting chooses the defaults: ours, the reference's numbers, or ours without a single write."""

    DEFAULT = "default"
    CONSERVATIVE = "conservative"
    OBSERVE = "observe"


@dataclass(frozen=True, slots=True)
class Whole:
    low: int = 0
    high: int | None = None

    def problem(self, value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return f"expected a whole number, got {value!r}"
        if value < self.low or (self.high is not None and value > self.high):
            upper = "more" if self.high is None else str(self.high)
            return f"expected {self.low} to {upper}, got {value}"
        return None


@dataclass(frozen=True, slots=True)
class Switch:
    def problem(self, value: Any) -> str | None:
        return None if isinstance(value, bool) else f"expected true or false, got {value!r}"


@dataclass(frozen=True, slots=True)
class Choice:
    values: tuple[str, ...]

    def problem(self, value: Any) -> str | None:
        return None if value in self.values else f"expected {' or '.join(self.values)}, got {value!r}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Above 0 and at most 1."""

    def problem(self, value: Any) -> str | None:
        try:
            exact = Decimal(str(value))
        except InvalidOperation:
            exact = Decimal(-1)
        good = not isinstance(value, bool) and 0 < exact <= 1
        return None if good else f"expected a number above 0 and at most 1, got {value!r}"


@dataclass(frozen=True, slots=True)
class Free:
    """Passed on as it is."""

    def problem(self, _value: Any) -> str | None:
        return None


Check = Whole | Switch | Choice | Ratio | Free


@dataclass(frozen=True, slots=True)
class PolicyField:
    """``idle`` replaces ``ours`` on nodes that run BE in the kernel's idle class; None is *unset*."""

    path: Path
    check: Check
    ours: Any = None
    reference: Any = None
    idle: Any = None
    why: str = ""

    def default(self, profile: Profile, *, idle_class: bool) -> Any:
        if profile is Profile.CONSERVATIVE:
            return self.reference
        return self.idle if idle_class and self.idle is not None else self.ours


_PERCENT: Final = Whole(0, 100)
_POSITIVE: Final = Whole(1)
_LINE: Final = Whole(0)
_ON: Final = "on, because that is what one installs it for"


def _same(name: str, check: Check, value: Any = None) -> PolicyField:
    return PolicyField((name,), check, value, value)


COLOCATION: Final = (
    PolicyField(("enable",), Switch(), True, True, None, f"{_ON} (reference: false)"),
    PolicyField(
        ("cpuReclaimThresholdPercent",), _LINE, 60, 60, 95,
        "BE in the idle class takes only time that nobody wants, so a node filled to 95 % stays healthy",
    ),
    PolicyField(
        ("memoryReclaimThresholdPercent",), _LINE, 85, 65, None,
        "5 points under the eviction line; memory has no idle class, but limits hold and eviction is quick",
    ),
    _same("metricAggregateDurationSeconds", _POSITIVE, 300),
    _same("metricReportIntervalSeconds", _POSITIVE, 60),
    _same("cpuCalculatePolicy", Choice(("usage", "maxUsageRequest")), "usage"),
    _same("memoryCalculatePolicy", Choice(("usage", "request", "maxUsageRequest")), "usage"),
    _same("batchCPUThresholdPercent", _LINE),
    _same("batchMemoryThresholdPercent", _LINE),
    _same("degradeTimeMinutes", _POSITIVE, 15),
    PolicyField(("updateTimeThresholdSeconds",), _POSITIVE, 60, 300, None, "a minute-old number misleads explain"),
    PolicyField(("resourceDiffThreshold",), Ratio(), 0.05, 0.1, None, "small machines sell small amounts"),
    _same("midReclaimMode", Choice(("static", "prediction"))),
    _same("midCPUThresholdPercent", _PERCENT, 100),
    _same("midMemoryThresholdPercent", _PERCENT, 100),
    _same("midUnallocatedPercent", _PERCENT, 0),
    _same("midStaticCPUReservedPercent", _PERCENT, 0),
    _same("midStaticMemoryReservedPercent", _PERCENT, 0),
)  # fmt: skip

THRESHOLD: Final = (
    PolicyField(("enable",), Switch(), True, True, None, f"{_ON} (reference: false)"),
    PolicyField(
        ("cpuSuppressThresholdPercent",), _LINE, 65, 65, 95,
        "the idle class and the latency guard protect services; the cap only keeps the last 5 % free",
    ),
    _same("cpuSuppressMinPercent", _PERCENT),
    PolicyField(
        ("cpuSuppressPolicy",), Choice(("cpuset", "cfsQuota")), "cfsQuota", "cpuset", None,
        "a quota moves in small steps and needs no two free cores",
    ),
    PolicyField(
        ("memoryEvictThresholdPercent",), _LINE, 90, 70, None,
        "usage is counted without page cache; below 90 % nothing is in danger",
    ),
    _same("memoryEvictLowerPercent", _LINE),
    _same("cpuEvictPolicy", Choice(("evictByRealLimit", "evictByAllocatable")), "evictByRealLimit"),
    _same("cpuEvictBESatisfactionLowerPercent", _PERCENT),
    _same("cpuEvictBESatisfactionUpperPercent", _PERCENT),
    _same("cpuEvictBEUsageThresholdPercent", _PERCENT),
    _same("cpuEvictTimeWindowSeconds", _POSITIVE),
    _same("cpuEvictThresholdPercent", _LINE),
    _same("cpuEvictLowerPercent", _LINE),
    _same("cpuAllocatableEvictThresholdPercent", _LINE),
    _same("cpuAllocatableEvictLowerPercent", _LINE),
    _same("memoryAllocatableEvictThresholdPercent", _LINE),
    _same("memoryAllocatableEvictLowerPercent", _LINE),
    _same("evictEnabledPriorityThreshold", Whole(-(2**31))),
    _same("allocatableEvictPriorityThreshold", Whole(-(2**31), 7999)),
)  # fmt: skip

BURST: Final = (
    _same("policy", Choice(("none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto")), "none"),
    _same("cpuBurstPercent", _LINE, 1000),
    _same("cfsQuotaBurstPercent", _LINE, 300),
    _same("cfsQuotaBurstPeriodSeconds", Whole(-1), -1),
    _same("sharePoolThresholdPercent", _PERCENT, 50),
)

SYSTEM: Final = (
    _same("minFreeKbytesFactor", _LINE),
    _same("watermarkScaleFactor", Whole(1, 400)),
    _same("memcgReapBackGround", Whole(0, 1)),
    _same("totalNetworkBandwidth", Free()),
)

QOS_CLASSES: Final = ("lsrClass", "lsClass", "beClass", "systemClass")


def _qos(section: str, name: str, check: Check, numbers: tuple[Any, Any, Any, Any]) -> tuple[PolicyField, ...]:
    """One field for the four classes, in the order of ``QOS_CLASSES``."""
    return tuple(
        PolicyField((cls, section, name), check, value, value) for cls, value in zip(QOS_CLASSES, numbers, strict=True)
    )


def _enables() -> tuple[PolicyField, ...]:
    why = "harmless where the kernel or the processor lacks it; the agent reports what it cannot do"
    on = {"cpuQOS": True, "resctrlQOS": True, "memoryQOS": False}
    return tuple(
        PolicyField((cls, section, "enable"), Switch(), value, value, None, why if value else "")
        for section, value in on.items()
        for cls in QOS_CLASSES
    )


QOS: Final = (
    *_enables(),
    *_qos("cpuQOS", "groupIdentity", Whole(-1, 2), (2, 2, -1, 0)),
    *(
        PolicyField((cls, "cpuQOS", "schedIdle"), Whole(0, 1), 0, 0, 1 if cls == "beClass" else None,
                    "BE in the idle class where the kernel has one" if cls == "beClass" else "")
        for cls in QOS_CLASSES
    ),
    *_qos("cpuQOS", "coreExpeller", Switch(), (True, True, False, False)),
    *_qos("resctrlQOS", "catRangeStartPercent", _PERCENT, (0, 0, 0, 0)),
    *_qos("resctrlQOS", "catRangeEndPercent", _PERCENT, (100, 100, 30, 100)),
    *_qos("resctrlQOS", "mbaPercent", _PERCENT, (100, 100, 100, 100)),
    *_qos("memoryQOS", "minLimitPercent", _LINE, (0, 0, 0, 0)),
    *_qos("memoryQOS", "lowLimitPercent", _LINE, (0, 0, 0, 0)),
    *_qos("memoryQOS", "throttlingPercent", _LINE, (0, 0, 0, 0)),
    *_qos("memoryQOS", "wmarkRatio", _PERCENT, (95, 95, 95, 0)),
    *_qos("memoryQOS", "wmarkScalePermill", Whole(1, 1000), (20, 20, 20, 50)),
    *_qos("memoryQOS", "wmarkMinAdj", Whole(-25, 50), (-25, -25, 50, 0)),
    *_qos("memoryQOS", "priorityEnable", Whole(0, 1), (0, 0, 0, 0)),
    *_qos("memoryQOS", "priority", Whole(0, 12), (0, 0, 0, 0)),
    *_qos("memoryQOS", "oomKillGroup", Whole(0, 1), (0, 0, 0, 0)),
    PolicyField(("policies", "cpuPolicy"), Choice(("groupIdentity", "coreSched")), "groupIdentity", "groupIdentity"),
    PolicyField(("policies", "netQOSPolicy"), Choice(("tc", "terway-qos")), "tc", "tc"),
)  # fmt: skip

DISABLED_QOS: Final = {
    "cpuQOS": {"groupIdentity": 0, "schedIdle": 0, "coreExpeller": False},
    "resctrlQOS": {"catRangeStartPercent": 0, "catRangeEndPercent": 100, "mbaPercent": 100},
    "memoryQOS": {
        "minLimitPercent": 0, "lowLimitPercent": 0, "throttlingPercent": 0, "wmarkRatio": 0, "wmarkScalePermill": 50,
        "wmarkMinAdj": 0, "priorityEnable": 0, "priority": 0, "oomKillGroup": 0,
    },
}  # fmt: skip
"""What a class section holds once its ``enable`` is false: disabling has to undo, not merely stop."""


@dataclass(frozen=True, slots=True)
class Section:
    """One key of ``slo-controller-config``; ``target`` is where it lands in the NodeSLO (None: colocation)."""

    key: str
    target: str | None
    fields: tuple[PolicyField, ...]
    cluster: str | None
    nodes: str
    opaque: tuple[str, ...] = ()
    """Names passed on unchecked."""

    def field(self, path: Path) -> PolicyField | None:
        return next((f for f in self.fields if f.path == path), None)


SECTIONS: Final = (
    Section("colocation-config", None, COLOCATION, None, "nodeConfigs"),
    Section("resource-threshold-config", "resourceUsedThresholdWithBE", THRESHOLD, "clusterStrategy", "nodeStrategies"),
    Section(
        "resource-qos-config", "resourceQOSStrategy", QOS, "clusterStrategy", "nodeStrategies",
        ("cgroupRoot", "blkioQOS", "networkQOS"),
    ),
    Section("cpu-burst-config", "cpuBurstStrategy", BURST, "clusterStrategy", "nodeStrategies"),
    Section("system-config", "systemStrategy", SYSTEM, "clusterStrategy", "nodeStrategies"),
)  # fmt: skip
HOST_APPLICATIONS: Final = "host-application-config"
NOT_ACTED_ON: Final = ("cpu-normalization-config", "resource-amplification-config")
PROFILE_KEY: Final = "policy-profile"
