"""What each user of the bus may publish and subscribe to, from who is declared to write, ask, answer and read what.

Streams are made and changed by services only, and ``$JS.API.>`` is the operator's alone: its holder can purge and
delete every bucket at one call.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from cotenant_common.contracts.buckets import BUCKETS, EVENTS_STREAM, BucketSpec
from cotenant_common.contracts.messages.events import AGENT_EVENT_TYPES
from cotenant_common.contracts.subjects import (
    DEAD_PREFIX,
    EVENTS_PREFIX,
    EVENTS_WILDCARD,
    JSON_PREFIX,
    PREFIX,
    TOPICS,
    Topic,
)
from cotenant_common.model.ids import encode_token

SERVICES: Final = ("gateway", "scheduler", "quota", "descheduler", "profiler", "agent", "bridge")
INBOX_PREFIX: Final = "_INBOX"
# The bridge takes the gateway's place beside Kubernetes, and the agents' for what a kubelet knows.
_STANDS_IN: Final = {"bridge": ("gateway", "agent")}
_API: Final = "$JS.API"


class Role(StrEnum):
    SERVICE = "service"
    AGENT = "agent"
    OBSERVER = "observer"
    APPLICATION = "application"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class User:
    """``name`` is the login and names the inbox. ``subject`` is the agent's node or the observer's consumer."""

    name: str
    role: Role
    subject: str = ""

    @property
    def inbox(self) -> str:
        """Replies of one user go where no other may listen."""
        return inbox_prefix(self.name)


def service_user(service: str) -> User:
    return User(service, Role.SERVICE)


def agent_user(node: str) -> User:
    """Raise InvalidNameError."""
    token = encode_token(node)
    return User(f"agent-{token}", Role.AGENT, token)


def observer_user(consumer: str) -> User:
    """An outside tool and the one durable consumer that it may make; both have the same name."""
    name = f"observer-{encode_token(consumer)}"
    return User(name, Role.OBSERVER, name)


OPERATOR: Final = User("operator", Role.OPERATOR)
APPLICATION: Final = User("application", Role.APPLICATION)


def inbox_prefix(user: str) -> str:
    return f"{INBOX_PREFIX}.{user}"


def may_publish(user: User) -> list[str]:
    """Subjects, sorted."""
    return sorted(set(_PUBLISH[user.role](user)))


def may_subscribe(user: User) -> list[str]:
    return sorted({f"{user.inbox}.>", *_SUBSCRIBE[user.role](user)})


def _service_publishes(user: User) -> Iterator[str]:
    service = user.name
    yield EVENTS_WILDCARD
    yield f"{DEAD_PREFIX}.{service}"
    yield f"{_API}.STREAM.INFO.*"
    # Whoever starts first makes a stream. Changing one is for those who stand for users: a republish added to a bucket
    # would be a way around every other line here.
    streams = (EVENTS_STREAM.name, *(spec.stream for spec in BUCKETS))
    yield from (f"{_API}.STREAM.CREATE.{stream}" for stream in streams)
    if service in ("gateway", "bridge"):
        yield from (f"{_API}.STREAM.UPDATE.{stream}" for stream in streams)
        yield f"{JSON_PREFIX}.>"
        yield from _reads_with_any_consumer(EVENTS_STREAM.name)
    for spec in BUCKETS:
        yield from _reads_with_any_consumer(spec.stream)
        if spec.key == "<service>":
            yield f"$KV.{spec.bucket}.{service}"
        elif _is_among(service, spec.writer):
            yield f"$KV.{spec.bucket}.>"
    yield from _asks_and_answers(service)


def _reads_with_any_consumer(stream: str) -> Iterator[str]:
    yield f"{_API}.CONSUMER.CREATE.{stream}.*.>"
    yield f"{_API}.DIRECT.GET.{stream}"
    yield f"{_API}.DIRECT.GET.{stream}.>"
    yield from _keeps_consumers(stream)


def _keeps_consumers(stream: str) -> Iterator[str]:
    # The names of consumers are random and nobody may list them, so only their makers can name them here.
    yield f"{_API}.CONSUMER.INFO.{stream}.*"
    yield f"{_API}.CONSUMER.DELETE.{stream}.*"
    # Answers to an ordered read's flow control.
    yield f"$JS.FC.{stream}.>"


def _agent_publishes(user: User) -> Iterator[str]:
    node = user.subject
    yield f"{DEAD_PREFIX}.agent"
    yield f"{_API}.STREAM.INFO.{EVENTS_STREAM.name}"
    for kind in AGENT_EVENT_TYPES:
        yield f"{EVENTS_PREFIX}.{kind}.{'>' if kind.startswith('pod.') else node}"
    for spec in BUCKETS:
        if spec.agent_reads is not None:
            yield from _agent_reads(spec, spec.agent_reads.replace("<node>", node))
        if spec.agent_marks:
            mark = f"$KV.{spec.bucket}.announced.{user.name}"
            yield mark
            yield f"{_API}.DIRECT.GET.{spec.stream}.{mark}"
        if _is_among("agent", spec.writer):
            yield f"$KV.{spec.bucket}.{spec.key.replace('<node>', node).replace('<uid>', '*')}"
    yield from _asks_and_answers("agent", node)


def _agent_reads(spec: BucketSpec, keys: str) -> Iterator[str]:
    subject = f"$KV.{spec.bucket}.{keys}"
    yield f"{_API}.STREAM.INFO.{spec.stream}"
    yield f"{_API}.CONSUMER.CREATE.{spec.stream}.*.{subject}"
    yield f"{_API}.DIRECT.GET.{spec.stream}.{subject}"
    yield from _keeps_consumers(spec.stream)


def _observer_publishes(user: User) -> Iterator[str]:
    stream, consumer = EVENTS_STREAM.name, user.subject
    yield f"{_API}.STREAM.INFO.{stream}"
    yield f"{_API}.CONSUMER.CREATE.{stream}.{consumer}.{EVENTS_WILDCARD}"
    for call in ("INFO", "MSG.NEXT", "DELETE"):
        yield f"{_API}.CONSUMER.{call}.{stream}.{consumer}"
    yield f"$JS.ACK.{stream}.{consumer}.>"


def _application_publishes(_: User) -> Iterator[str]:
    return (topic.wildcard for topic in TOPICS if _is_among("application", topic.publisher))


def _operator_publishes(_: User) -> Iterator[str]:
    # Backup and restore; the pieces of a snapshot are acknowledged on subjects of their own.
    yield from (f"{_API}.>", "$JS.SNAPSHOT.>")


def _asks_and_answers(role: str, node: str = "*") -> Iterator[str]:
    for topic in TOPICS:
        if _is_among(role, topic.publisher):
            yield _of_node(topic, node)
        if topic.server is not None and _is_among(role, topic.server):
            # Not ``allow_responses``: the server would remember a reply subject for every message of every watch.
            yield from (f"{user}.>" for user in _inboxes(topic))


def _inboxes(topic: Topic) -> Iterator[str]:
    for role in topic.publisher.split(", "):
        # One token: `agent-<node>` cannot be told apart by a wildcard, and an inbox cannot be guessed.
        yield inbox_prefix("*" if role == "agent" else role)


def _of_node(topic: Topic, node: str) -> str:
    return replace(topic, subject=topic.subject.replace("{node}", node)).wildcard


def _service_subscribes(_: User) -> Iterator[str]:
    """Every service may read everything of the bus: what is secret does not belong on it."""
    yield f"{PREFIX}.>"


def _agent_subscribes(user: User) -> Iterator[str]:
    for topic in TOPICS:
        if topic.server == "agent" or topic.name in ("bound", "app_latency"):
            yield _of_node(topic, user.subject)


def _observer_subscribes(_: User) -> Iterator[str]:
    yield EVENTS_WILDCARD
    yield f"{JSON_PREFIX}.>"


def _nothing(_: User) -> Iterator[str]:
    return iter(())


_PUBLISH: Final = {
    Role.SERVICE: _service_publishes,
    Role.AGENT: _agent_publishes,
    Role.OBSERVER: _observer_publishes,
    Role.APPLICATION: _application_publishes,
    Role.OPERATOR: _operator_publishes,
}
_SUBSCRIBE: Final = {
    Role.SERVICE: _service_subscribes,
    Role.AGENT: _agent_subscribes,
    Role.OBSERVER: _observer_subscribes,
    Role.APPLICATION: _nothing,
    Role.OPERATOR: _service_subscribes,
}


def _is_among(service: str, declared: str) -> bool:
    roles = {service, *_STANDS_IN.get(service, ())}
    return any(role in roles for role in declared.split(", "))
