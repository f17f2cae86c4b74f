"""What one process runtime is given to work with."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """`default_user` (name or number) applies to a pod without runAsUser when the agent is root.

    Unset, it is the user who called sudo, and only then the agent's own.
    """

    state_dir: Path
    default_user: str | None = None
    start_timeout_s: float = 30.0
    kill_timeout_s: float = 10.0
    poll_interval_s: float = 0.25
    exec_capture_bytes: int = 10_240

    def pod_dir(self, uid: str) -> Path:
        return self.state_dir / "pods" / uid

    def container_dir(self, uid: str, container: str) -> Path:
        return self.pod_dir(uid) / container
