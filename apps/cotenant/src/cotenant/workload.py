"""Manifests for one-off commands: a bare Pod, or a Job of N units."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cotenant.errors import BadInputError
from cotenant_common.model import labels, quantity, resources
from cotenant_common.model.qos import PriorityBand, QosClass

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """``user_id`` is stated, never implied: the agent refuses to guess whom a command runs as."""

    command: Sequence[str]
    name: str
    namespace: str = "default"
    qos: QosClass = QosClass.BE
    band: PriorityBand = PriorityBand.BATCH
    cpu_milli: int = 1000
    memory_bytes: int = 256 << 20
    working_dir: str | None = None
    user_id: int | None = None
    group_id: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    units: int | None = None
    parallelism: int | None = None
    quota: str | None = None


def manifest(spec: CommandSpec) -> dict[str, Any]:
    """A Job when ``units`` is set, else a Pod that is not restarted. Raise BadInputError."""
    pod = {"metadata": {"labels": _labels(spec)}, "spec": _pod_spec(spec)}
    metadata = {"name": spec.name, "namespace": spec.namespace}
    if spec.units is None:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | pod["metadata"], "spec": pod["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completions": spec.units,
            "parallelism": spec.units if spec.parallelism is None else spec.parallelism,
            "template": pod,
        },
    }


def generated_name(command: Sequence[str], suffix: str) -> str:
    """``sort-3fa9c`` from ``/usr/bin/sort -r big.txt``."""
    base = _NOT_IN_NAMES.sub("-", command[0].rpartition("/")[2].lower()).strip("-")[:40] or "run"
    return f"{base}-{suffix}"


def parse_qos(text: str) -> QosClass:
    try:
        found = QosClass(text.upper())
    except ValueError:
        found = QosClass.NONE
    if found in (QosClass.NONE, QosClass.SYSTEM):
        raise BadInputError(f"expected --qos BE, LS, LSR or LSE, got {text!r}")
    return found


def parse_band(text: str | None, qos: QosClass) -> PriorityBand:
    """The band that was named, else the one that fits the class."""
    if text is None:
        return PriorityBand.BATCH if qos is QosClass.BE else PriorityBand.PROD
    name = text.lower().removeprefix("koord-")
    try:
        return PriorityBand(f"koord-{name}")
    except ValueError:
        raise BadInputError(f"expected --priority prod, mid, batch or free, got {text!r}") from None


def parse_amount(name: str, text: str) -> int:
    """A quantity of cpu or memory in its canonical unit. Raise BadInputError."""
    if name == "memory" and text.endswith("m"):
        raise BadInputError(f"--memory: {text} is thousandths of a byte; expected for example {text[:-1]}Mi")
    try:
        return resources.parse(name, text)
    except quantity.QuantityError as error:
        raise BadInputError(f"--{name}: {error}") from error


def _labels(spec: CommandSpec) -> dict[str, str]:
    found = {labels.QOS_CLASS: spec.qos.value}
    if spec.quota:
        found[labels.QUOTA_NAME] = spec.quota
    return found


def _pod_spec(spec: CommandSpec) -> dict[str, Any]:
    context = {"runAsUser": spec.user_id, "runAsGroup": spec.group_id}
    container: dict[str, Any] = {
        "name": "main",
        # Kubernetes expands $(NAME) and halves $$; what a user typed is what must run.
        "command": [word.replace("$", "$$") for word in spec.command],
        "env": [{"name": name, "value": value} for name, value in spec.environment.items()],
        "resources": _resources(spec),
        "securityContext": {key: value for key, value in context.items() if value is not None},
    }
    if spec.working_dir is not None:
        container["workingDir"] = spec.working_dir
    return {"priorityClassName": spec.band.value, "restartPolicy": "Never", "containers": [container]}


def _resources(spec: CommandSpec) -> dict[str, dict[str, str]]:
    """What the band sells: batch resources for batch, mid for mid, native ones for prod, none for free."""
    sold = resources.RESOURCES_BY_BAND[spec.band.short]
    values = {resources.CPU: spec.cpu_milli, resources.MEMORY: spec.memory_bytes}
    amounts = {sold[name]: resources.render(sold[name], value) for name, value in values.items() if name in sold}
    return {"requests": amounts, "limits": dict(amounts)} if amounts else {}
