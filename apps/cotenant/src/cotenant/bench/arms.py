"""The demo's arms as one scenario: a node per arm, the same service and the same neighbours on each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotenant.demo.plan import BALLOON_LIMIT_BYTES, GREEDY, NEIGHBOUR_MEMORY_BYTES, Arm, Neighbour, neighbours
from cotenant_common.model import labels
from cotenant_common.model.resources import BATCH_CPU, BATCH_MEMORY

Json = dict[str, Any]

NAMESPACE: Final = "demo"
SERVICE: Final = "http-service"
_LOAD_ALONE_AT_S: Final = 12
"""The node has measured itself for longer than the profiler averages."""
_PAUSE_S: Final = 1
_START_S: Final = 3
_GIB: Final = 1 << 30
_IDLE_MILLI: Final = 10


@dataclass(frozen=True, slots=True)
class Step:
    """Equal parts of the measured time. CPU in milli-cores; ``system_milli`` is all that is no pod's."""

    service_milli: int
    system_milli: int


@dataclass(frozen=True, slots=True)
class Given:
    """What the simulator is told: the machine, and what was measured with no neighbour on it."""

    cores: int
    memory_bytes: int
    steps: Sequence[Step]
    segment_s: float
    balloon_bytes: int

    @property
    def neighbours_at_s(self) -> float:
        """After a segment without any: the demo admits neighbours to a node that was just under load, too."""
        return _LOAD_ALONE_AT_S + self.segment_s + _PAUSE_S

    @property
    def load_at_s(self) -> float:
        """Neighbours start in a second or two; then the load that is measured begins."""
        return self.neighbours_at_s + _START_S

    @property
    def end_s(self) -> float:
        return self.load_at_s + self.segment_s


FIXED: Final = Given(
    cores=2,
    memory_bytes=8 * _GIB,
    steps=(Step(200, 120), Step(800, 200), Step(400, 150)),
    segment_s=18.0,
    balloon_bytes=BALLOON_LIMIT_BYTES,
)
"""A quiet 2-core machine: service at 10, 40 and 20 %, and what the load generator and the stack take beside it."""


def scenario(given: Given) -> Json:
    """As data; ``text`` is the file."""
    return {
        "apiVersion": "cotenant.io/v1",
        "kind": "Scenario",
        "metadata": {"name": "demo-arms"},
        "spec": {
            "seed": 1,
            "duration": _span(given.end_s),
            # As the demo sets them: a node sells this much sooner after an arm that Cotenant did not control.
            "config": {"profiler": {"windowS": 5, "riseHoldS": 4}},
            "objects": [*(_node(arm, given) for arm in Arm), *(_service(arm, given) for arm in Arm)],
            "timeline": _timeline(given),
        },
    }


def _span(seconds: float) -> str:
    return f"{round(1000 * seconds)}ms"


def _node(arm: Arm, given: Given) -> Json:
    capacity = {"cpu": str(given.cores), "memory": str(given.memory_bytes)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": str(arm)}, "status": {"capacity": capacity}}


def _pod(name: str, arm: Arm, qos: str, band: str, requests: Mapping[str, str], usage: str | None = None) -> Json:
    batch = BATCH_CPU in requests
    resources = {"requests": dict(requests)} | ({"limits": dict(requests)} if batch else {})
    annotations = {} if usage is None else {"annotations": {labels.SIM_USAGE: usage}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {labels.QOS_CLASS: qos}, **annotations},
        "spec": {
            "priorityClassName": band,
            "nodeSelector": {labels.HOSTNAME: str(arm)},
            "containers": [{"name": "main", "resources": resources}],
        },
    }


def service_name(arm: Arm) -> str:
    return f"{SERVICE}-{arm}"


def _service(arm: Arm, given: Given) -> Json:
    milli = _equal_milli(given) if arm is Arm.UNCONTROLLED else 500 * given.cores
    return _pod(service_name(arm), arm, "LS", "koord-prod", {"cpu": f"{milli}m", "memory": "256Mi"})


def _equal_milli(given: Given) -> int:
    """One weight for everybody, small enough that all of them fit: without Cotenant nobody counts requests."""
    return 1000 * given.cores // (len(neighbours(given.cores)) + 2)


def _timeline(given: Given) -> list[Json]:
    idle = [_usage(arm, 0, _IDLE_MILLI, given.steps[0].system_milli) for arm in Arm]
    arrival = {"at": _span(given.neighbours_at_s), "apply": _all_neighbours(given)}
    return [*idle, *_load(given, _LOAD_ALONE_AT_S), arrival, *_load(given, given.load_at_s)]


def _load(given: Given, begin_s: float) -> list[Json]:
    """The demo's steps, and silence after them."""
    step_s = given.segment_s / len(given.steps)
    entries = [
        _usage(arm, begin_s + number * step_s, step.service_milli, step.system_milli)
        for number, step in enumerate(given.steps)
        for arm in Arm
    ]
    after = [_usage(arm, begin_s + given.segment_s, _IDLE_MILLI, given.steps[0].system_milli) for arm in Arm]
    return [*entries, *(after if begin_s + given.segment_s < given.end_s else [])]


def _usage(arm: Arm, at_s: float, service_milli: int, system_milli: int) -> Json:
    """The same wishes on every node: that of the arm decides who gets what."""
    pods = {f"{NAMESPACE}/{service_name(arm)}": {"cpu": f"{service_milli}m", "memory": "64Mi"}}
    system = {"cpu": f"{system_milli}m", "memory": "1Gi"}
    return {"at": _span(at_s), "usage": {"node": str(arm), "system": system, "pods": pods}}


def _all_neighbours(given: Given) -> list[Json]:
    wanted = neighbours(given.cores)
    return [_neighbour(arm, one, given) for arm in (Arm.UNCONTROLLED, Arm.WEIGHTS, Arm.COTENANT) for one in wanted]


def _neighbour(arm: Arm, one: Neighbour, given: Given) -> Json:
    """Up to a core each. Without Cotenant nobody holds them: then they are services as far as the node knows."""
    greedy = one.kind == GREEDY
    held = given.balloon_bytes if greedy and arm is Arm.COTENANT else NEIGHBOUR_MEMORY_BYTES // 2
    usage = f'{{"cpu": "1", "memory": "{held}"}}'
    name = f"{one.name}-{arm}"
    match arm:
        case Arm.COTENANT:
            amounts = {BATCH_CPU: str(one.cpu_milli), BATCH_MEMORY: str(one.granted_memory_bytes)}
            return _pod(name, arm, "BE", "koord-batch", amounts, usage)
        case Arm.UNCONTROLLED:
            return _pod(name, arm, "LS", "koord-prod", {"cpu": f"{_equal_milli(given)}m"}, usage)
        case _:
            return _pod(name, arm, "LS", "koord-prod", {}, usage)


_HEAD: Final = """\
# The demo's arms on one machine each: alone, uncontrolled, minimal weight without a controller, Cotenant.
# `cotenant bench reality` builds this file anew from what a demo measured alone, and compares the rest with the demo.
"""


EXPECTED: Final[Sequence[Json]] = (
    {"at": "end", "node": str(Arm.ALONE), "usage": {"cpu": "550m"}},
    {"at": "end", "node": str(Arm.UNCONTROLLED), "usage": {"cpu": "2"}},
    {"at": "end", "node": str(Arm.WEIGHTS), "usage": {"cpu": "2"}},
    {"at": "end", "node": str(Arm.COTENANT), "usage": {"cpu": {"atLeast": "1.8", "atMost": "1.9"}}},
    {"at": "end", "pod": f"{NAMESPACE}/{SERVICE}-{Arm.COTENANT}", "phase": "Running"},
    {"at": "end", "pod": f"{NAMESPACE}/batch-0-compress-{Arm.COTENANT}", "phase": "Running"},
    {"at": "end", "pod": f"{NAMESPACE}/batch-9-compress-{Arm.COTENANT}", "phase": "Pending"},
    {"at": "end", "count": {"event": "pod.evicted"}, "equals": 0},
)
"""Of ``FIXED``: what needs no clock of a real machine to be known."""


def text(given: Given, expect: Sequence[Json] = ()) -> str:
    import yaml  # noqa: PLC0415 - slow to import

    whole = scenario(given)
    whole["spec"]["expect"] = list(expect)
    return _HEAD + yaml.safe_dump(whole, sort_keys=False, default_flow_style=None, width=110)
