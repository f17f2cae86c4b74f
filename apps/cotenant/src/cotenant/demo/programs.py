"""The example programs that the demo runs, as command lines and as manifests."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cotenant.demo.plan import GREEDY, MIB, Neighbour
from cotenant.errors import BadInputError
from cotenant_common.model import labels
from cotenant_common.model.qos import PriorityBand, QosClass
from cotenant_common.model.resources import BATCH_CPU, BATCH_MEMORY

NAMESPACE: Final = "demo"
SERVICE_NAME: Final = "http-service"
_MARKER: Final = Path("http-service", "service.py")
_NOBODY: Final = 65534
_WORLD_MAY_ENTER: Final = 0o001
_WORLD_MAY_READ: Final = 0o004


@dataclass(frozen=True, slots=True)
class User:
    uid: int
    gid: int
    why: str

    @property
    def switch(self) -> dict[str, Any]:
        """Arguments that make a child process this user; only root needs and may use them."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if os.geteuid() == 0 else {}


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the examples are, which interpreter runs them, and as whom."""

    examples: Path
    python: str
    user: User
    counters: Path

    @property
    def service(self) -> str:
        return str(self.examples / _MARKER)

    @property
    def load(self) -> str:
        return str(self.examples / "load" / "poisson.py")

    @property
    def neighbour(self) -> str:
        return str(self.examples / "neighbours" / "neighbour.py")

    def counter(self, neighbour: Neighbour, run: str) -> Path:
        return self.counters / f"{run}-{neighbour.name}"

    def service_command(self, port: int, workers: int) -> list[str]:
        return [self.python, self.service, "--port", str(port), "--workers", str(workers)]

    def neighbour_command(self, neighbour: Neighbour, run: str, balloon_bytes: int, seconds: float | None) -> list[str]:
        """``seconds`` ends a process that outlives the demo by whatever accident; a pod is ended by its node."""
        command = [
            self.python,
            self.neighbour,
            "--kind",
            neighbour.kind,
            "--counter",
            str(self.counter(neighbour, run)),
        ]
        if neighbour.kind == GREEDY:
            command += ["--balloon-mib", str(balloon_bytes // MIB), "--directory", str(self.counters)]
        return command if seconds is None else [*command, "--seconds", f"{seconds:g}"]


def find_examples(given: Path | None) -> Path:
    """The folder of a clone: named, else above this file (an editable install), else in the present directory."""
    candidates = [given] if given else [*(parent / "examples" for parent in Path(__file__).parents), Path("examples")]
    for candidate in candidates:
        if (candidate / _MARKER).is_file():
            return candidate.resolve()
    where = given or "the source tree of this installation or the present directory"
    raise BadInputError(f"no {_MARKER} in {where}: run the demo from a clone, or name its folder with --examples")


def choose_user(files: Sequence[Path]) -> User:
    """Whom the demo's work runs as: never root when somebody with fewer rights can read the programs."""
    if os.geteuid() != 0:
        return User(os.geteuid(), os.getegid(), "the user who started the demo")
    sudo = os.environ.get("SUDO_UID", "")
    if sudo.isdigit() and int(sudo):
        return User(int(sudo), int(os.environ.get("SUDO_GID", sudo)), "the user behind sudo")
    closed = next((path for path in files if not _world_readable(path)), None)
    if closed is None:
        return User(_NOBODY, _NOBODY, "nobody, since the demo was started by root")
    return User(0, 0, f"root, since others may not read {closed}")


def _world_readable(path: Path) -> bool:
    resolved = path.resolve()
    if not resolved.stat().st_mode & _WORLD_MAY_READ:
        return False
    return all(parent.stat().st_mode & _WORLD_MAY_ENTER for parent in [*resolved.parents, *path.absolute().parents])


def make_programs(examples: Path, workdir: Path) -> Programs:
    """``workdir`` becomes a place that the demo's user may enter and write counters in."""
    python = Path(sys.executable)
    user = choose_user([examples / _MARKER, python, Path(os.__file__)])
    counters = workdir / "counters"
    counters.mkdir()
    workdir.chmod(0o711)
    if os.geteuid() == 0:
        os.chown(counters, user.uid, user.gid)
    return Programs(examples, str(python), user, counters)


def _pod(name: str, qos: QosClass, band: PriorityBand, container: dict[str, Any], user: User) -> dict[str, Any]:
    # Stated here, since a pod's user is never implied.
    security = {"runAsUser": user.uid, "runAsGroup": user.gid}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {labels.QOS_CLASS: qos.value}},
        "spec": {
            "priorityClassName": band.value,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 2,
            "containers": [{"name": "main", "securityContext": security, **container}],
        },
    }


def service_pod(programs: Programs, port: int, cores: int) -> dict[str, Any]:
    probe = {
        "httpGet": {"path": "/healthz", "port": port, "host": "127.0.0.1"},
        "periodSeconds": 2,
        "timeoutSeconds": 5,
        "failureThreshold": 12,  # an arm that starves the service must not take it out of service as well
    }
    container = {
        "command": programs.service_command(port, cores),
        "resources": {"requests": {"cpu": f"{cores * 500}m", "memory": "256Mi"}},
        "readinessProbe": probe,
    }
    return _pod(SERVICE_NAME, QosClass.LS, PriorityBand.PROD, container, programs.user)


def neighbour_pod(programs: Programs, neighbour: Neighbour, run: str, balloon_bytes: int) -> dict[str, Any]:
    amounts = {BATCH_CPU: str(neighbour.cpu_milli), BATCH_MEMORY: str(neighbour.granted_memory_bytes)}
    container = {
        "command": programs.neighbour_command(neighbour, run, balloon_bytes, None),
        "resources": {"requests": amounts, "limits": dict(amounts)},
    }
    return _pod(neighbour.name, QosClass.BE, PriorityBand.BATCH, container, programs.user)
