"""The systemd units. Every option that takes something away or asks for something says why."""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

NATS: Final = "nats"
_ETC: Final = PurePosixPath("/etc/cotenant")
_UNITS: Final = PurePosixPath("/etc/systemd/system")
_STATE: Final = PurePosixPath("/var/lib/cotenant")


@dataclass(frozen=True, slots=True)
class Paths:
    """Places on the host; ``--prefix`` comes before them when files are written, not in their contents."""

    python: PurePosixPath
    nats_server: PurePosixPath
    units: PurePosixPath = _UNITS
    config: PurePosixPath = _ETC / "cotenant.yaml"
    bus_token: PurePosixPath = _ETC / "bus-token"
    api_token: PurePosixPath = _ETC / "api-token"
    nats_config: PurePosixPath = _ETC / "nats" / "nats.conf"
    nats_auth: PurePosixPath = _ETC / "nats" / "auth.conf"
    agent_config: PurePosixPath = _ETC / "agent.yaml"
    agent_token: PurePosixPath = _ETC / "agent-token"
    state: PurePosixPath = _STATE


def render_target() -> str:
    return """\
# All of Cotenant on this host: `systemctl start|stop cotenant.target`. Pods outlive the agent; `cotenant agent leave`
# ends them.
[Unit]
Description=Cotenant

[Install]
WantedBy=multi-user.target
"""


def render_unit(part: str, paths: Paths) -> str:
    if part == NATS:
        return _NATS_UNIT.format(server=paths.nats_server, config=paths.nats_config, hardening=_HARDENING)
    if part == "agent":
        return _AGENT_UNIT.format(python=paths.python, config=paths.agent_config)
    return _SERVICE_UNIT.format(part=part, python=paths.python, config=paths.config, hardening=_HARDENING)


_HARDENING: Final = """\
User=cotenant
Group=cotenant
# Nothing on disk is its to change; what it keeps is on the bus.
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectProc=invisible
# It decides about cgroups and the kernel's settings, and leaves them to the agent.
ProtectControlGroups=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectClock=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
LockPersonality=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
SystemCallArchitectures=native
SystemCallFilter=@system-service
UMask=0077
"""

_SERVICE_UNIT: Final = """\
[Unit]
Description=Cotenant {part}
# Any order works: a service without its bus waits and says so on /readyz.
After=network-online.target cotenant-nats.service
Wants=network-online.target
PartOf=cotenant.target

[Service]
Type=exec
Environment=COTENANT_CONFIG={config} COTENANT_LOG_FORMAT=json PYTHONDONTWRITEBYTECODE=1
ExecStart={python} -m cotenant_{part}
Restart=always
RestartSec=1
# Status 3 is a setting that it does not accept: starting it again changes nothing.
RestartPreventExitStatus=3
# SIGTERM drains within 5 s.
TimeoutStopSec=10
# Several times what it holds when idle (some 70 MiB): a leak ends it before it ends its neighbours.
MemoryMax=512M
TasksMax=128
{hardening}
[Install]
WantedBy=cotenant.target
"""

_NATS_UNIT: Final = """\
[Unit]
Description=Cotenant nats-server
After=network-online.target
Wants=network-online.target
PartOf=cotenant.target

[Service]
Type=exec
# The Go runtime collects harder before the limit below ends it.
Environment=GOMEMLIMIT=384MiB
ExecStart={server} -c {config}
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=1
TimeoutStopSec=15
MemoryMax=512M
LimitNOFILE=65536
StateDirectory=cotenant/nats
StateDirectoryMode=0700
{hardening}
[Install]
WantedBy=cotenant.target
"""

_AGENT_UNIT: Final = """\
[Unit]
Description=Cotenant agent
After=network-online.target
Wants=network-online.target
PartOf=cotenant.target

[Service]
Type=exec
Environment=COTENANT_CONFIG={config} COTENANT_LOG_FORMAT=json PYTHONDONTWRITEBYTECODE=1
ExecStart={python} -m cotenant_agent
Restart=always
RestartSec=1
RestartPreventExitStatus=3
TimeoutStopSec=10
# Root: it writes cgroup files, reads what every process uses and waits for, and starts pods as the users they name.
User=root
# It makes groups of its own; systemd must not tidy them up.
Delegate=yes
# Only the agent ends when it is stopped or replaced. Its pods run on, and the next agent takes them over.
KillMode=process
# When memory runs out, the one that can free some must not be the first to go.
OOMScoreAdjust=-900
LimitNOFILE=65536
TasksMax=infinity
StateDirectory=cotenant/agent
StateDirectoryMode=0700
# No sandbox of files and devices: pods inherit whatever is taken away here, and may need homes and devices. What pods
# cannot need is the rest of root: kept are files of others, pods' users, ending them, their priority and limits, and
# reading the figures of foreign processes.
CapabilityBoundingSet=CAP_DAC_OVERRIDE CAP_CHOWN CAP_FOWNER CAP_SETUID CAP_SETGID CAP_KILL
CapabilityBoundingSet=CAP_SYS_NICE CAP_SYS_RESOURCE CAP_SYS_PTRACE

[Install]
WantedBy=cotenant.target
"""
