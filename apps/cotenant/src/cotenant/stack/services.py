"""The services of a stack: where their code is and which settings the stack decides for them."""

import importlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cotenant.errors import BadInputError
from cotenant.stack import ports
from cotenant.stack.home import StackRecord, load_record
from cotenant.stack.options import StackOptions
from cotenant_common.contracts.permissions import agent_user, service_user
from cotenant_common.runtime.service import Factory
from cotenant_common.runtime.settings import ServiceSettings, SettingsError, load_settings, variable_prefix

LEADERS: Final = ("gateway", "scheduler", "quota", "profiler", "descheduler")
"""Those of which one copy leads, by a lease."""
SERVICES: Final = (*LEADERS, "agent")
"""In the order in which they are started; any order works."""

_FACTORIES: Final[Mapping[str, tuple[str, str]]] = {
    "gateway": ("cotenant_gateway.app.service", "GatewayService"),
    "scheduler": ("cotenant_scheduler.app", "SchedulerService"),
    "quota": ("cotenant_quota.app", "QuotaService"),
    "profiler": ("cotenant_profiler.app", "ProfilerService"),
    "descheduler": ("cotenant_descheduler.app", "DeschedulerService"),
    "agent": ("cotenant_agent.node", "build_agent"),
}
"""Called with (context, settings); imported when the service starts, not when the command line does."""


@dataclass(frozen=True, slots=True)
class StackPlan:
    """Every choice of one run made: ports, names, and the settings each service gets from the stack."""

    options: StackOptions
    node: str
    nats_port: int
    gateway_port: int
    health_ports: Mapping[str, int]
    """One per service when each is a process; the entry ``stack`` when all share one."""
    cgroup_root: str
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def nats_url(self) -> str:
        return f"nats://{ports.LOOPBACK}:{self.nats_port}"

    @property
    def gateway_url(self) -> str:
        return f"http://{ports.LOOPBACK}:{self.gateway_port}"

    def health_url(self, service: str) -> str:
        if service in self.health_ports:
            return f"http://{ports.LOOPBACK}:{self.health_ports[service]}"
        return f"http://{ports.LOOPBACK}:{self.health_ports['stack']}/{service}"


def make_plan(options: StackOptions) -> StackPlan:
    """Choose what the options left open; a home keeps its ports and cgroup from one run to the next."""
    earlier = load_record(options.state)
    taken: list[int] = []

    def port(what: str, wanted: int | None, before: int | None) -> int:
        taken.append(ports.choose(what, wanted, before, taken))
        return taken[-1]

    nats_port = port("nats-server", options.nats_port, ports.of_url(earlier.nats_url) if earlier else None)
    gateway_port = port("gateway", options.gateway_port, ports.of_url(earlier.gateway_url) if earlier else None)
    health = {name: port("health", None, None) for name in (SERVICES if options.processes else ("stack",))}
    node = options.checked().node or ""
    plan = StackPlan(options, node, nats_port, gateway_port, health, _cgroup_root(options, earlier))
    return StackPlan(
        options,
        node,
        nats_port,
        gateway_port,
        health,
        plan.cgroup_root,
        {name: _overrides(plan, name) for name in SERVICES},
    )


def _cgroup_root(options: StackOptions, earlier: StackRecord | None) -> str:
    """Unique per home, so that two stacks never share a group; kept, so that running pods are found again."""
    if options.cgroup_root is not None:
        return options.cgroup_root
    return earlier.cgroup_root if earlier else f"cotenant-{secrets.token_hex(3)}"


def _overrides(plan: StackPlan, service: str) -> dict[str, Any]:
    options = plan.options
    home = options.state
    common: dict[str, Any] = {
        "nats_servers": (plan.nats_url,),
        **_login(plan, service),
        "http_port": plan.health_ports.get(service, 0),
        "log_level": options.log_level,
        # The same from start to start, so that a service that was killed takes its own lease over at once.
        "instance": f"{plan.node}-{service}",
    }
    if service == "gateway":
        return common | {"api_port": plan.gateway_port, "api_token_file": home.api_token, "policy": options.policy}
    if service == "agent":
        return common | {
            "node": plan.node,
            "state_dir": home.agent,
            "cgroup_root": plan.cgroup_root,
            "cpus": options.cpus,
            "memory_bytes": options.memory_bytes,
        }
    return common


def _login(plan: StackPlan, service: str) -> dict[str, Any]:
    home = plan.options.state
    if not plan.options.bus_users:
        return {"nats_token_file": home.nats_token}
    user = (agent_user(plan.node) if service == "agent" else service_user(service)).name
    return {"nats_user": user, "nats_password_file": home.bus_secret(user)}


def settings_class(service: str) -> type[ServiceSettings]:
    if service not in SERVICES:
        raise BadInputError(f"no service {service!r}; known: {', '.join(SERVICES)}")
    module = importlib.import_module(f"cotenant_{service}.config")
    found: type[ServiceSettings] = getattr(module, f"{service.capitalize()}Settings")
    return found


def settings(plan: StackPlan, service: str) -> ServiceSettings:
    """The stack's choices over environment and file. Raise BadInputError naming the setting."""
    try:
        return load_settings(settings_class(service), overrides=plan.overrides[service])
    except SettingsError as error:
        raise BadInputError(f"{service}: {error}") from error


def effective_settings(service: str, file: Path | None) -> dict[str, Any]:
    """What a service alone would start with. Raise BadInputError."""
    try:
        return load_settings(settings_class(service), file).model_dump(mode="json")
    except SettingsError as error:
        raise BadInputError(f"{service}: {error}") from error


def factory(service: str, chosen: ServiceSettings) -> Factory:
    """Import the service's code and bind its settings."""
    module, made = _FACTORIES[service]
    make = getattr(importlib.import_module(module), made)
    return lambda context: make(context, chosen)


def environment(plan: StackPlan, service: str) -> dict[str, str]:
    """The same choices as variables, for a service that runs as a process of its own."""
    prefix = variable_prefix(service)
    return {
        prefix + name.upper(): ",".join(value) if isinstance(value, tuple) else str(value)
        for name, value in plan.overrides[service].items()
        if value is not None
    }
