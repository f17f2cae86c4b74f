"""What each service may publish and subscribe to on the server, from who is declared to write what.

``$JS.API.>`` is never granted: its holder could purge and delete every bucket at one call.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from cotenant_common.contracts.buckets import BUCKETS, BucketSpec
from cotenant_common.contracts.subjects import DEAD_PREFIX, EVENTS_WILDCARD, JSON_PREFIX, PREFIX, TOPICS

SERVICES: Final = ("gateway", "scheduler", "quota", "descheduler", "profiler", "agent", "bridge")
# The bridge takes the gateway's place beside Kubernetes, and the agents' for what a kubelet knows.
_STANDS_IN: Final = {"bridge": ("gateway", "agent")}
_ANYBODY: Final = ("any service", "holder")
# Opening, reading and watching: the account holds this system's streams only.
_API: Final = (
    "$JS.API.STREAM.INFO.*",
    "$JS.API.STREAM.CREATE.*",
    "$JS.API.STREAM.UPDATE.*",
    "$JS.API.CONSUMER.CREATE.*.>",
    "$JS.API.CONSUMER.INFO.*.*",
    "$JS.API.CONSUMER.DELETE.*.*",
    "$JS.API.DIRECT.GET.>",
)


def publishes(service: str) -> list[str]:
    """Subjects that a service may publish to, sorted."""
    allowed = {
        "_INBOX.>",
        EVENTS_WILDCARD,
        f"{DEAD_PREFIX}.>",
        # Answers to an ordered read's flow control.
        "$JS.FC.>",
        *_API,
    }
    for spec in BUCKETS:
        if _is_among(service, spec.writer):
            allowed.update(_key_subjects(service, spec))
    allowed.update(topic.wildcard for topic in TOPICS if _is_among(service, topic.publisher))
    if service in ("gateway", "bridge"):
        allowed.add(f"{JSON_PREFIX}.>")
    return sorted(allowed)


def subscribes() -> list[str]:
    """Every service may read everything of the bus: what is secret does not belong on it."""
    return ["_INBOX.>", f"{PREFIX}.>"]


def _is_among(service: str, declared: str) -> bool:
    if declared in _ANYBODY:
        return True
    roles = {service, *_STANDS_IN.get(service, ())}
    return any(role.strip() in roles for role in declared.split(","))


def _key_subjects(service: str, spec: BucketSpec) -> Iterator[str]:
    """The keys of a bucket: for an agent those of its own node, written ``NODE``; of ``leases`` one's own."""
    if spec.key == "<service>":
        yield f"$KV.{spec.bucket}.{service}"
    elif service == "agent" and spec.key.startswith("<node>"):
        yield f"$KV.{spec.bucket}.NODE" + (".>" if "." in spec.key else "")
    else:
        yield f"$KV.{spec.bucket}.>"


def render(head: str) -> str:
    """A block to include in nats-server's configuration, one user per service, passwords from its environment."""
    users = "".join(_user(service) for service in SERVICES)
    return (
        f"# {head}\n"
        "# Passwords come from the server's environment: COTENANT_<SERVICE>_PASSWORD. Copy the agent's user for each\n"
        "# node; NODE stands for the node's name, `.` written as `_`.\n"
        f"authorization {{\n  users = [\n{users}  ]\n}}\n"
    )


def _user(service: str) -> str:
    name = "agent-NODE" if service == "agent" else service
    return (
        f"    {{\n      user: {name}\n      password: $COTENANT_{service.upper()}_PASSWORD\n      permissions: {{\n"
        f"        publish: {{ allow: [\n{_lines(publishes(service))}        ] }}\n"
        f"        subscribe: {{ allow: [\n{_lines(subscribes())}        ] }}\n"
        "      }\n    }\n"
    )


def _lines(subjects: Sequence[str]) -> str:
    return "".join(f'          "{subject}"\n' for subject in subjects)
