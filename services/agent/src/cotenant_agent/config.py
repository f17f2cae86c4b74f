"""Settings of the agent: its slice of the machine, its intervals, and when the latency guard acts."""

import socket
from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from cotenant_agent.core.cpuset import parse_cpuset
from cotenant_agent.core.guard import GuardSettings
from cotenant_common.runtime.settings import ServiceSettings


class AgentSettings(ServiceSettings):
    """Agents that share a host differ in `node`, `cpus`, `memory_bytes` and `state_dir`, and do not overlap."""

    service: ClassVar[str] = "agent"

    node: str = Field(default_factory=lambda: socket.gethostname().lower())
    labels: dict[str, str] = Field(default_factory=dict)
    """Added to the labels that the agent measures itself."""
    state_dir: Path = Path("/var/lib/cotenant/agent")
    """Pods' records and logs, and the journal of written knobs."""
    cgroup_root: str = Field("cotenant", pattern=r"^[A-Za-z0-9_.-]+$")
    cgroup_fs: Path = Path("/sys/fs/cgroup")
    proc_fs: Path = Path("/proc")
    sys_fs: Path = Path("/sys")

    cpus: str | None = None
    """The slice in kernel list format; unset: every cpu online."""
    memory_bytes: int | None = Field(None, ge=1 << 20)
    """Unset: all of the machine's memory."""
    reserved_cpu_milli: int = Field(0, ge=0)
    reserved_memory_bytes: int = Field(0, ge=0)
    """Never offered to pods, and never counted as room for BE."""
    max_pods: int = Field(250, ge=1)

    usage_interval_ms: int = Field(1_000, ge=100)
    signal_interval_ms: int = Field(200, ge=100)
    """At most ten a second; only sent while a pod with a latency target runs."""
    suspects: int = Field(5, ge=1)
    """Busiest BE pods whose signals are sent beside those of the pods with a target."""
    heartbeat_interval_ms: int = Field(3_000, ge=500)
    heartbeat_ttl_s: int = Field(10, ge=2)
    snapshot_interval_ms: int = Field(60_000, ge=1_000)
    """How often the bindings are read in full; in between they come as copies, which may be lost."""

    pod_pids_limit: int = Field(4_096, ge=16)
    """Processes and threads per pod: far above real work, far below what a fork bomb needs."""
    be_memory_reserve_percent: int = Field(5, ge=0, le=90)
    """Memory that BE pods together never get, whatever services asked for."""
    default_user: str | None = None
    """Runs pods without runAsUser when the agent is root; unset: who called sudo, and only then root."""

    observe: bool = False
    """Write no knob and evict nobody, whatever the policy says; measure, run pods and report."""
    guard: bool = True
    guard_wait_ms_per_slice: float = Field(GuardSettings().wait_ms_per_slice, gt=0)
    guard_pressure_percent: float = Field(GuardSettings().pressure_percent, gt=0, le=100)
    guard_floor_percent: int = Field(GuardSettings().floor_percent, ge=0, le=100)

    emergency_allowance: int = Field(3, ge=0)
    """Removals that the node may decide while nobody answers; the gate's answers renew it."""
    emergency_cool_down_ms: int = Field(4_000, ge=1_000)

    @field_validator("cpus")
    @classmethod
    def _is_cpu_list(cls, value: str | None) -> str | None:
        if value is not None and not parse_cpuset(value):
            raise ValueError("expected at least one cpu, such as 0-3,8")
        return value

    @property
    def guard_settings(self) -> GuardSettings:
        return GuardSettings(
            wait_ms_per_slice=self.guard_wait_ms_per_slice,
            pressure_percent=self.guard_pressure_percent,
            floor_percent=self.guard_floor_percent,
        )

    @property
    def journal_path(self) -> Path:
        return self.state_dir / "knobs.jsonl"
