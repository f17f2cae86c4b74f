"""From a launch to what the shim is handed, with every refusal that can be known before a process exists."""

import os
import re
import resource
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotenant_agent.runtime.environment import argument_list, declared_env, workload_env
from cotenant_agent.runtime.identity import RunAs, resolve
from cotenant_agent.runtime.launch import ContainerLaunch, LaunchError, PodLaunch

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
MIN_LOG_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Prepared:
    """`process` is the part of the shim's spec that says what to exec and how."""

    run_as: RunAs
    process: dict[str, Any]


def prepare(
    pod: PodLaunch, container: ContainerLaunch, default_user: str | None, environ: Mapping[str, str]
) -> Prepared:
    check_name("metadata.uid", pod.uid)
    check_name("containers[].name", container.name)
    _check_limits(container)
    run_as = resolve(container, default_user, environ)
    declared = declared_env(pod, container)
    env = workload_env(declared, run_as.user, run_as.home)
    argv = argument_list(container, declared)
    cwd = _directory(container.working_dir)
    process = {
        "path": find_command(argv[0], env["PATH"], cwd),
        "argv": argv,
        "env": env,
        "cwd": cwd,
        "uid": run_as.uid if run_as.switch else None,
        "gid": run_as.gid,
        "groups": list(run_as.groups),
        "cgroup_procs": list(container.cgroup_procs),
        "oom_score_adj": container.oom_score_adj,
        "nice": _own_nice() if container.nice is None else container.nice,
        "sched_idle": container.sched_idle,
        "cpus": list(container.cpus),
        "rlimits": [[limit.name, limit.soft, limit.hard] for limit in container.rlimits],
        "umask": container.umask,
    }
    return Prepared(run_as, process)


def _own_nice() -> int:
    """Ours, unless that is a favour: a workload inherits what we are held to and not what we were given."""
    return max(os.getpriority(os.PRIO_PROCESS, 0), 0)


def check_name(field: str, value: str) -> str:
    """Uids and container names become directories: nothing that climbs out of ours."""
    if not _SAFE_NAME.fullmatch(value):
        raise LaunchError(field, f"{value!r} is not a name of letters, digits, '-', '_' and '.'")
    return value


def find_command(command: str, search_path: str, cwd: str) -> str:
    if not command:
        raise LaunchError("command", "the command is an empty string")
    if "/" in command:
        return _runnable(Path(cwd) / command, command)
    folders = [folder or "." for folder in search_path.split(":")]
    candidates = [Path(cwd) / folder / command for folder in folders]
    found = [path for path in candidates if path.is_file()]
    for path in found:
        if os.access(path, os.X_OK):
            return str(path)
    if found:
        return _runnable(found[0], command)
    raise LaunchError("command", f"{command!r} not found; searched PATH {search_path}")


def _runnable(path: Path, command: str) -> str:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise LaunchError("command", f"{command!r} not found at {path}: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise LaunchError("command", f"{path} is a directory, not a program")
    if not os.access(path, os.X_OK):
        raise LaunchError("command", f"{path} is not executable (mode {stat.S_IMODE(mode):04o})")
    return str(path)


def _directory(working_dir: str | None) -> str:
    if working_dir is None:
        return "/"
    path = Path(working_dir)
    if not path.is_absolute():
        raise LaunchError("workingDir", f"{working_dir!r} is not an absolute path")
    if not path.is_dir():
        raise LaunchError("workingDir", f"{working_dir} is not a directory on this machine")
    return working_dir


def _check_limits(container: ContainerLaunch) -> None:
    for limit in container.rlimits:
        if not hasattr(resource, f"RLIMIT_{limit.name.upper()}"):
            raise LaunchError("rlimits", f"this system has no limit named {limit.name!r}")
    score = container.oom_score_adj
    if score is not None and not -1000 <= score <= 1000:
        raise LaunchError("oomScoreAdj", f"{score} is outside -1000 to 1000")
    if container.log.max_bytes < MIN_LOG_BYTES or container.log.files < 1:
        raise LaunchError(
            "log", f"{container.log} keeps too little: at least one file of {MIN_LOG_BYTES} bytes is needed"
        )
    missing = [path for path in container.cgroup_procs if not Path(path).exists()]
    if missing:
        raise LaunchError("cgroup", f"{', '.join(missing)} does not exist: make the pod's group before its processes")
