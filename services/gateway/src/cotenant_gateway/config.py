"""Settings of the gateway."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from cotenant_common.runtime.settings import ServiceSettings
from cotenant_gateway.core.lifecycle import Retention
from cotenant_gateway.core.nodes import NodeLimits
from cotenant_gateway.core.policy_fields import Profile
from cotenant_gateway.core.removal import Caps, GateSettings, MoveLimits


class GatewaySettings(ServiceSettings):
    """Sources as for every service; variables begin with ``COTENANT_GATEWAY_``."""

    service: ClassVar[str] = "gateway"

    api_enabled: bool = True
    """A simulation has no sockets and asks the service object itself."""
    api_host: str = "127.0.0.1"
    """Any other machine's address needs a token file."""
    api_port: int = Field(default=7070, ge=0, le=65_535)
    """0: the system chooses, and the log says which."""
    api_token_file: Path | None = None
    """Mode 0600, owned by the user of the gateway: who can read it can run commands."""
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Host names, besides those of loopback, that a browser may come from or ask for; comma-separated."""
    max_body_bytes: int = Field(default=3 * 1024 * 1024, gt=0)
    """Manifests of a few thousand pods; parsing more would hold up everybody else."""
    runtime: Literal["process", "simulated"] = "process"
    """What agents run: simulated pods need no command."""
    policy: Profile = Profile.DEFAULT
    """Defaults of the node policy: default, conservative or observe."""
    mirror_json: bool = True
    """Events again as JSON under ``cotenant.v1.json.evt.>``, for people with a NATS client."""
    uid_seed: str = "cotenant"
    """Part of every uid; two clusters with one seed and one history would share identities."""
    lease_ttl_s: int = Field(default=4, ge=2)
    not_ready_s: int = Field(default=40, gt=0)
    """Four heartbeats of 10 s."""
    lost_s: int = Field(default=300, gt=0)
    """A reboot fits in; what runs on a lost node runs twice until the node hears of it."""
    keep_finished_s: int = Field(default=3_600, ge=0)
    keep_finished: int = Field(default=1_000, ge=0)
    cap_per_node: int | None = Field(default=None, ge=0)
    """Forced removals within ``cap_window_s``; unset is no cap."""
    cap_per_namespace: int | None = Field(default=None, ge=0)
    cap_per_workload: int | None = Field(default=None, ge=0)
    cap_total: int | None = Field(default=None, ge=0)
    cap_window_s: int = Field(default=60, gt=0)
    move_cool_down_s: int = Field(default=300, ge=0)
    """Per workload: a move must show its effect before the next one."""
    moves_per_node: int | None = Field(default=2, ge=1)
    """Pods on their way at one time, as the two below."""
    moves_per_namespace: int | None = Field(default=None, ge=1)
    moves_total: int | None = Field(default=None, ge=1)
    max_migrating: str | int | None = None
    """Per workload, number or percentage; unset: Koordinator's 10 % / 2 / 1."""
    max_unavailable: str | int | None = None
    protect_last_replicas: bool = True
    """Never move where one move could take all replicas (Koordinator's ExpectedReplicas)."""
    emergency_pause_s: int = Field(default=10, ge=0)
    """Between two overrides of a budget on one node."""
    drains_per_node: int = Field(default=10, ge=1)
    promise_s: int = Field(default=60, ge=0)
    """How long freed room is kept for the one it was freed for, beyond the victim's grace."""
    audit_s: int = Field(default=300, ge=1)
    """Between two comparisons of what the gateway believes with what the store holds."""

    @field_validator("allowed_origins", mode="before")
    @classmethod
    def _split_origins(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    def gate(self) -> GateSettings:
        caps = Caps(
            self.cap_per_node, self.cap_per_namespace, self.cap_per_workload, self.cap_total, 1000 * self.cap_window_s
        )
        moves = MoveLimits(
            1000 * self.move_cool_down_s,
            self.moves_per_node,
            self.moves_per_namespace,
            self.moves_total,
            self.max_migrating,
            self.max_unavailable,
            self.protect_last_replicas,
        )
        return GateSettings(caps, moves, 1000 * self.emergency_pause_s, self.drains_per_node, 1000 * self.promise_s)

    def node_limits(self) -> NodeLimits:
        return NodeLimits(1000 * self.not_ready_s, 1000 * self.lost_s)

    def retention(self) -> Retention:
        return Retention(1000 * self.keep_finished_s, self.keep_finished)
