"""Every subject of the bus, declared once: template, message, publisher, delivery, and what goes wrong harmlessly."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cotenant_common.contracts.messages import commands, events, state, telemetry
from cotenant_common.contracts.messages.base import Message
from cotenant_common.model.ids import encode_token

PREFIX: Final = "cotenant.v1"


class Delivery(StrEnum):
    """How a subject is carried."""

    LATEST = "core NATS; a lost message is replaced by the next"
    EVENT = "JetStream stream COTENANT_EVENTS; at least once, replay by sequence or time"
    COMMAND = "request with retry; idempotent by id"
    QUERY = "request and reply; ask again on silence"
    REPUBLISH = "core NATS copy of a bucket write; the bucket is the truth"
    MIRROR = "core NATS copy for people; never read by a service"


@dataclass(frozen=True, slots=True)
class Topic:
    """``subject`` holds ``{fields}``; ids come last so that one ``*`` subscribes to all of them."""

    name: str
    subject: str
    message: type[Message]
    publisher: str
    delivery: Delivery
    reply: type[Message] | None = None
    server: str | None = None
    """Who answers; None: nobody does."""
    duplicate: str = "no effect"
    loss: str = "none: retried"
    reorder: str = "no effect"
    restart: str = "resumes"

    def format(self, **ids: str) -> str:
        """The concrete subject; every id is encoded to one token. Raise InvalidNameError."""
        return self.subject.format(**{key: encode_token(value) for key, value in ids.items()})

    @property
    def wildcard(self) -> str:
        """Subscribes to every id."""
        parts = [("*" if part.startswith("{") else part) for part in self.subject.split(".")]
        return ".".join(parts)


_SAME_SAMPLE: Final = "same sample again, no effect"
_NEXT_SAMPLE: Final = "the next sample replaces it"

NODE_USAGE: Final = Topic(
    "node_usage",
    f"{PREFIX}.tel.node.usage.{{node}}",
    telemetry.NodeUsage,
    "agent",
    Delivery.LATEST,
    reorder="older at_ms is dropped",
    restart="first sample has no cpu",
    duplicate=_SAME_SAMPLE,
    loss=_NEXT_SAMPLE,
)
NODE_SIGNAL: Final = Topic(
    "node_signal",
    f"{PREFIX}.tel.node.signal.{{node}}",
    telemetry.NodeSignal,
    "agent",
    Delivery.LATEST,
    reorder="older at_ms is dropped",
    restart="first sample is empty",
    duplicate=_SAME_SAMPLE,
    loss=_NEXT_SAMPLE,
)
APP_LATENCY: Final = Topic(
    "app_latency",
    f"{PREFIX}.tel.app.latency.{{namespace}}.{{pod}}",
    telemetry.AppLatency,
    "application",
    Delivery.LATEST,
    reorder="older at_ms is dropped",
    duplicate=_SAME_SAMPLE,
    loss=_NEXT_SAMPLE,
)
BOUND: Final = Topic(
    "bound",
    f"{PREFIX}.bound.{{node}}.{{uid}}",
    state.Binding,
    "server (republish of cotenant-bindings)",
    Delivery.REPUBLISH,
    duplicate="same attempt, no effect",
    loss="found by the periodic snapshot",
    reorder="lower sequence is dropped",
    restart="snapshot first",
)
POD_EVICT: Final = Topic(
    "pod_evict",
    f"{PREFIX}.cmd.pod.evict",
    commands.EvictRequest,
    "descheduler, quota, scheduler, agent",
    Delivery.COMMAND,
    reply=commands.EvictReply,
    server="gateway",
    duplicate="the first answer again, nothing else",
    restart="answered from the specs that hold the command id",
)
OBJECT_APPLY: Final = Topic(
    "object_apply",
    f"{PREFIX}.cmd.object.apply",
    commands.ApplyRequest,
    "quota",
    Delivery.COMMAND,
    reply=commands.ApplyReply,
    server="gateway",
    duplicate="unchanged",
    restart="apply is idempotent by content",
)
EMERGENCY_USED: Final = Topic(
    "emergency_used",
    f"{PREFIX}.cmd.emergency.report",
    commands.EmergencyUsed,
    "agent",
    Delivery.COMMAND,
    reply=commands.EvictReply,
    server="gateway",
    duplicate="counted once by id",
    restart="reported again until answered",
)
SCHEDULER_EXPLAIN: Final = Topic(
    "scheduler_explain",
    f"{PREFIX}.req.scheduler.explain",
    commands.ExplainRequest,
    "gateway",
    Delivery.QUERY,
    reply=commands.ExplainReply,
    server="scheduler",
)
SCHEDULER_WHY_NOT: Final = Topic(
    "scheduler_why_not",
    f"{PREFIX}.req.scheduler.why_not",
    commands.WhyNotRequest,
    "gateway, descheduler",
    Delivery.QUERY,
    reply=commands.WhyNotReply,
    server="scheduler",
)
QUOTA_TREE: Final = Topic(
    "quota_tree",
    f"{PREFIX}.req.quota.tree",
    commands.QuotaTreeRequest,
    "gateway",
    Delivery.QUERY,
    reply=commands.QuotaTreeReply,
    server="quota",
)
AGENT_LOGS: Final = Topic(
    "agent_logs",
    f"{PREFIX}.req.agent.logs.{{node}}",
    commands.LogsRequest,
    "gateway",
    Delivery.QUERY,
    reply=commands.LogsReply,
    server="agent",
)

TOPICS: Final = (
    NODE_USAGE, NODE_SIGNAL, APP_LATENCY, BOUND, POD_EVICT, OBJECT_APPLY, EMERGENCY_USED,
    SCHEDULER_EXPLAIN, SCHEDULER_WHY_NOT, QUOTA_TREE, AGENT_LOGS,
)  # fmt: skip

EVENTS_PREFIX: Final = f"{PREFIX}.evt"
EVENTS_WILDCARD: Final = f"{PREFIX}.evt.>"
EVENTS_MESSAGE: Final = events.Event
JSON_PREFIX: Final = f"{PREFIX}.json"
DEAD_PREFIX: Final = f"{PREFIX}.dead"


def event_subject(event_type: str, object_key: str) -> str:
    """``pod.bound`` of ``Pod/default/web`` → ``….evt.pod.bound.default.web``; the ``-`` of cluster scope is dropped."""
    _, namespace, name = object_key.split("/", 2)
    ids = [encode_token(part) for part in (namespace, name) if part != "-"]
    return ".".join([EVENTS_PREFIX, event_type, *ids])


def json_subject(subject: str) -> str:
    """Where the gateway mirrors an event as JSON for ``nats sub``."""
    return JSON_PREFIX + subject.removeprefix(PREFIX)


def dead_subject(service: str) -> str:
    """Where a service sends bytes it could not read."""
    return f"{DEAD_PREFIX}.{service}"
