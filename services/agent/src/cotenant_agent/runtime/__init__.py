"""The process runtime: pods as plain processes of this machine.

The shape: `PodRuntime` (asyncio, no threads) prepares a `PodLaunch`, refusing by `LaunchError` what it
cannot honour, and starts one shim per container (`shim/`, its own interpreter and session). The shim
starts the command inside the pod's groups, rotates its output, and records its end in
`<state_dir>/pods/<uid>/<container>/state.json`. Agent and shim share nothing but that file, so either may
be killed alone: a new agent calls `adopt()`, and a command without a shim runs on with its end unknown.

`backoff` decides restarts and `probe_core` readiness; both are pure. `ContainerProber` asks the probes.
"""

from cotenant_agent.runtime.backoff import RestartAt, RestartPolicy, Terminal, decide_restart
from cotenant_agent.runtime.launch import ContainerLaunch, EnvVar, LaunchError, LogLimits, PodLaunch, Rlimit
from cotenant_agent.runtime.pod_runtime import PodRuntime, StopResult
from cotenant_agent.runtime.probe_core import (
    ContainerProbes,
    ExecAction,
    HttpGetAction,
    Probe,
    ProbeKind,
    ProbeResult,
    ProbeState,
    TcpSocketAction,
)
from cotenant_agent.runtime.probes import ContainerProber
from cotenant_agent.runtime.settings import RuntimeSettings
from cotenant_agent.runtime.state import ContainerPhase, ContainerState

__all__ = [
    "ContainerLaunch",
    "ContainerPhase",
    "ContainerProber",
    "ContainerProbes",
    "ContainerState",
    "EnvVar",
    "ExecAction",
    "HttpGetAction",
    "LaunchError",
    "LogLimits",
    "PodLaunch",
    "PodRuntime",
    "Probe",
    "ProbeKind",
    "ProbeResult",
    "ProbeState",
    "RestartAt",
    "RestartPolicy",
    "Rlimit",
    "RuntimeSettings",
    "StopResult",
    "TcpSocketAction",
    "Terminal",
    "decide_restart",
]
