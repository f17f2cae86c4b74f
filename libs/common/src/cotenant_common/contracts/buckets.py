"""Every key-value bucket and stream: key, writer, value, retention and its reason."""

from dataclasses import dataclass
from typing import Final

from cotenant_common.contracts.messages import state
from cotenant_common.contracts.messages.base import Message

BUCKET_PREFIX: Final = "cotenant-"


@dataclass(frozen=True, slots=True)
class BucketSpec:
    """``ttl_keys`` buckets carry keys that expire; ``republish`` is the (source, destination) of a core NATS copy."""

    name: str
    key: str
    writer: str
    message: type[Message]
    what: str
    ttl_keys: bool = False
    republish: tuple[str, str] | None = None
    sync_always: bool = True
    """False where the next write comes within seconds anyway."""
    agent_reads: str | None = None
    """Keys that an agent reads, ``<node>`` standing for its own; None: none. Services read everything."""
    agent_marks: bool = False
    """Agents tell of their writes as events, and each keeps the key ``announced.agent-<node>`` here for that."""

    @property
    def bucket(self) -> str:
        return BUCKET_PREFIX + self.name

    @property
    def stream(self) -> str:
        return "KV_" + self.bucket


SPECS: Final = BucketSpec(
    "specs",
    "<Kind>.<ns or ->.<name>",
    "gateway",
    state.SpecRecord,
    "what users want; deletion mark; incarnation",
    agent_reads="Pod.>",
)
POLICIES: Final = BucketSpec(
    "policies",
    "<node>",
    "gateway",
    state.PolicyRecord,
    "effective NodeSLO with the source of each value",
    agent_reads="<node>",
)
NODES: Final = BucketSpec(
    "nodes",
    "<node>",
    "agent",
    state.NodeInventory,
    "measured inventory, topology, capabilities",
    agent_reads="<node>",
)
HEARTBEATS: Final = BucketSpec(
    "heartbeats",
    "<node>",
    "agent",
    state.Heartbeat,
    "key that lives 10 s",
    ttl_keys=True,
    sync_always=False,
    agent_reads="<node>",
)
PODSTATUS: Final = BucketSpec(
    "podstatus",
    "<node>.<uid>",
    "agent",
    state.PodStatusRecord,
    "phase, restarts, rejected binds, terminal status",
    agent_reads="<node>.*",
    agent_marks=True,
)
BINDINGS: Final = BucketSpec(
    "bindings",
    "<uid>.<node>",
    "scheduler",
    state.Binding,
    "placement, attempt, epoch, digest of the spec",
    republish=("*.*", "cotenant.v1.bound.{{wildcard(2)}}.{{wildcard(1)}}"),
    agent_reads="*.<node>",
)
PODSCHED: Final = BucketSpec(
    "podsched",
    "<uid>",
    "scheduler",
    state.PodSchedRecord,
    "conditions and reasons while pending; nominations",
    sync_always=False,
)
QUOTASTATUS: Final = BucketSpec(
    "quotastatus",
    "<tree>",
    "quota",
    state.QuotaTreeStatus,
    "runtime of every quota, generation, revisions applied",
    sync_always=False,
)
OVERCOMMIT: Final = BucketSpec(
    "overcommit",
    "<node>",
    "profiler",
    state.OvercommitRecord,
    "batch and mid resources with the sum that made them",
    sync_always=False,
)
MIGRATIONS: Final = BucketSpec(
    "migrations", "<id>", "descheduler", state.MigrationRecord, "migration jobs and their state"
)
LEASES: Final = BucketSpec(
    "leases",
    "<service>",
    "holder",
    state.LeaseRecord,
    "who leads, for discovery",
    ttl_keys=True,
    sync_always=False,
)

BUCKETS: Final = (
    SPECS, POLICIES, NODES, HEARTBEATS, PODSTATUS, BINDINGS, PODSCHED, QUOTASTATUS, OVERCOMMIT, MIGRATIONS, LEASES,
)  # fmt: skip


def is_bookkeeping(key: str) -> bool:
    """Keys of the bucket's own machinery: the lease that fences it and the announcer's mark. Readers skip them."""
    return key.startswith(("lease.", "announced."))


@dataclass(frozen=True, slots=True)
class StreamSpec:
    name: str
    subjects: tuple[str, ...]
    max_age_s: int
    max_bytes: int
    duplicate_window_s: int
    why: str


EVENTS_STREAM: Final = StreamSpec(
    "COTENANT_EVENTS",
    ("cotenant.v1.evt.>",),
    max_age_s=7 * 86_400,
    max_bytes=1 << 30,
    duplicate_window_s=120,
    why="a week is a sprint of incidents to look back on; 1 GiB bounds a laptop's disk",
)
