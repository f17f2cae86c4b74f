"""Values of the key-value buckets. One writer each; see ``contracts.buckets`` for who."""

from typing import Any, Literal

from pydantic import Field

from cotenant_common.contracts import codec
from cotenant_common.contracts.messages.base import Message, PodRef

PodPhase = Literal["Pending", "Starting", "Running", "Succeeded", "Failed", "Deleted"]


class Deletion(Message):
    """A mark on a spec: the agent stops the pod, then the gateway removes the spec."""

    at_ms: int
    grace_ms: int
    reason: str
    message: str
    requested_by: str
    requeue: bool = False
    """True after an eviction or a lost node: a successor with incarnation + 1 follows in the same write."""
    command_id: str | None = None
    kind: str | None = None
    """Kind of the forced removal (``move``, ``drain``, …); None for a user's delete."""
    data: dict[str, Any] = Field(default_factory=dict)
    """Numbers behind the decision."""


class SpecRecord(Message):
    """Bucket ``specs``: what a user wants, validated and with profiles applied."""

    kind: str
    namespace: str | None = None
    name: str
    uid: str
    incarnation: int = 0
    generation: int = 1
    created_ms: int
    manifest: dict[str, Any]
    owner: str | None = None
    """``Kind/namespace/name`` of the controller object this one was made for."""
    deletion: Deletion | None = None
    terminal_ms: int | None = None
    """When the gateway saw the terminal status; the record is kept an hour or the last 1,000."""
    requeued_from: str | None = None
    """uid of the incarnation that this one replaces."""
    requeue_reason: str | None = None
    evicted: list["Eviction"] = Field(default_factory=list)
    """Forced removals of earlier incarnations, newest last, at most ten."""
    tells: list[str] = Field(default_factory=list)
    """Types of the events that this very write announces, so that a restart can announce them again."""


class Eviction(Message):
    """One forced removal, kept with the successor so that ``explain`` can tell the story."""

    at_ms: int
    uid: str
    node: str | None = None
    reason: str
    message: str
    requested_by: str
    data: dict[str, Any] = Field(default_factory=dict)


class PolicyRecord(Message):
    """Bucket ``policies``: the effective NodeSLO of one node and where each value came from."""

    node: str
    slo: dict[str, Any]
    colocation: dict[str, Any]
    sources: dict[str, str] = Field(default_factory=dict)
    """Dotted field path → ``default``, ``cluster`` or the name of the node strategy."""
    observe: bool = False
    frozen: str | None = None
    """Reason of a freeze in force."""
    observe_namespaces: list[str] = Field(default_factory=list)
    """Pods of these namespaces are measured and reported on, never removed."""


class NodeInventory(Message):
    """Bucket ``nodes``: what the agent measured of its machine, or of its slice of it."""

    node: str
    boot_id: str
    agent_id: str
    """Changes with each start of the agent."""
    started_ms: int
    capacity: dict[str, int]
    allocatable: dict[str, int]
    labels: dict[str, str] = Field(default_factory=dict)
    cpus: str = ""
    """The slice in kernel list format, ``0-3``."""
    cpu_model: str | None = None
    kernel: str | None = None
    runtime: str = "process"
    idle_class: bool = False
    capabilities: dict[str, Any] = Field(default_factory=dict)


class Heartbeat(Message):
    """Bucket ``heartbeats``: a key that lives ten seconds."""

    node: str
    agent_id: str
    at_ms: int


class ContainerStatus(Message):
    name: str
    state: Literal["Waiting", "Running", "Terminated"]
    pid: int | None = None
    restarts: int = 0
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    started_ms: int | None = None
    finished_ms: int | None = None


class PodStatusRecord(Message):
    """Bucket ``podstatus``: what the node knows about one pod."""

    uid: str
    namespace: str
    name: str
    node: str
    phase: PodPhase
    ready: bool = False
    reason: str | None = None
    message: str | None = None
    attempt: int = 1
    """Binding attempt this status answers."""
    rejected: bool = False
    """True when the agent refused the binding; the scheduler records it and tries again."""
    restarts: int = 0
    bound_ms: int | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    exit_code: int | None = None
    run_as: str | None = None
    containers: list[ContainerStatus] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    survivor: SpecRecord | None = None
    """What the pod was started from, while no store the node can see holds it: it outlived the store it came from."""

    @property
    def terminal(self) -> bool:
        """Nothing of the pod runs any more, and nothing will."""
        return self.phase in ("Succeeded", "Failed", "Deleted")


class Binding(Message):
    """Bucket ``bindings``: one pod on one node; carries the charge, so that a restart can rebuild every ledger."""

    uid: str
    namespace: str
    name: str
    node: str
    attempt: int
    epoch: int
    """Lease epoch of the scheduler that wrote it."""
    spec_digest: str
    requests: dict[str, int]
    estimate: dict[str, int] = Field(default_factory=dict)
    quota: str | None = None
    quota_chain: list[str] = Field(default_factory=list)
    qos: str = ""
    band: str = ""
    priority: int = 0
    preemptible: bool = True
    cpuset: str | None = None
    devices: dict[str, Any] = Field(default_factory=dict)
    bound_ms: int
    queued_ms: int | None = None
    score: int | None = None
    cause_id: str | None = None


class RefusalCount(Message):
    """How many nodes refused for one reason, with an example and what would help."""

    reason: str
    nodes: int
    message: str
    example_node: str | None = None
    helps: str | None = None


class PodSchedRecord(Message):
    """Bucket ``podsched``: why a pod waits."""

    uid: str
    namespace: str
    name: str
    state: Literal["Queued", "Gated", "Unschedulable", "BackOff", "Nominated", "Rejected"]
    reason: str | None = None
    message: str | None = None
    refusals: list[RefusalCount] = Field(default_factory=list)
    nodes_total: int = 0
    attempts: int = 0
    since_ms: int
    updated_ms: int
    nominated_node: str | None = None
    rejected_bindings: list[str] = Field(default_factory=list)
    """``node: reason`` of refused binds, newest last."""


class QuotaRuntime(Message):
    """One quota inside a tree's status. Resource lists by dimension; unset dimensions are absent."""

    name: str
    namespace: str = "default"
    parent: str | None = None
    is_parent: bool = False
    allow_lent: bool = True
    min: dict[str, int] = Field(default_factory=dict)
    max: dict[str, int] = Field(default_factory=dict)
    request: dict[str, int] = Field(default_factory=dict)
    used: dict[str, int] = Field(default_factory=dict)
    non_preemptible_used: dict[str, int] = Field(default_factory=dict)
    runtime: dict[str, int] = Field(default_factory=dict)
    guaranteed: dict[str, int] = Field(default_factory=dict)
    namespaces: list[str] = Field(default_factory=list)
    problem: str | None = None
    """Why this quota hangs nowhere and shares nothing, such as a parent that does not exist."""
    stop_policy: Literal["None", "Hold", "HoldAndDrain"] = "None"
    """The strongest of its own and its ancestors'; other than ``None``, nothing new is admitted."""
    over_since_ms: int | None = None
    """Since when it uses more than its share; kept here so that a restart does not start the delay again."""


class QuotaLoan(Message):
    lender: str
    borrower: str
    resource: str
    amount: int


class QuotaChange(Message):
    """What this generation changed against the one before; the events of the write are derived from it."""

    kind: Literal["borrowed", "returned", "reclaimed", "over"]
    borrower: str
    lender: str | None = None
    resource: str
    amount: int
    outstanding: int


class QuotaTreeStatus(Message):
    """Bucket ``quotastatus``: one message per tree."""

    tree: str
    generation: int
    specs_revision: int
    """Last revision of ``specs`` that these shares account for."""
    bindings_revision: int
    nodes_revision: int
    total: dict[str, int]
    quotas: list[QuotaRuntime]
    loans: list[QuotaLoan] = Field(default_factory=list)
    changes: list[QuotaChange] = Field(default_factory=list)
    computed_ms: int


codec.keep_parts(QuotaTreeStatus, {"quotas": QuotaRuntime, "loans": QuotaLoan})


class OvercommitTerm(Message):
    """The sum behind one published number: capacity − margin − system − what prod uses."""

    resource: str
    capacity: int
    margin: int
    system: int
    prod_used: int
    result: int
    message: str


class OvercommitRecord(Message):
    """Bucket ``overcommit``: what may be sold a second time on one node. ``None`` is *not sold*, which is not zero."""

    node: str
    batch: dict[str, int] | None = None
    mid: dict[str, int] | None = None
    terms: list[OvercommitTerm] = Field(default_factory=list)
    degraded: str | None = None
    """Reason code when the metrics do not allow selling."""
    message: str = ""
    metric_ms: int | None = None
    computed_ms: int


class MigrationRecord(Message):
    """Bucket ``migrations``."""

    id: str
    pod: PodRef
    successor_uid: str | None = None
    mode: Literal["move", "reclaim"]
    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Aborted"]
    reason: str
    message: str
    source_node: str
    target_node: str | None = None
    created_ms: int
    updated_ms: int


class LeaseRecord(Message):
    """Key ``lease.<service>`` of the bucket it fences, and ``<service>`` in ``leases`` for discovery."""

    service: str
    holder: str
    epoch: int
    acquired_ms: int
    ttl_s: int
    address: str | None = None
