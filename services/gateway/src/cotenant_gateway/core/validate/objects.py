"""One manifest in, what is wrong with it out. Cross-object rules live in ``plan``."""

from collections.abc import Mapping
from typing import Any, Final

from cotenant_common.model import labels, resources
from cotenant_common.model.pod import container_resources, parse_pod
from cotenant_common.model.qos import QosClass, check_combination, labelled_qos, raw_band
from cotenant_common.model.quantity import QuantityError
from cotenant_gateway.core.validate.kinds import KINDS, NOT_YET, Kind
from cotenant_gateway.core.validate.meta import check_name, selector_matches
from cotenant_gateway.core.validate.podspec import NO_IMAGE
from cotenant_gateway.core.validate.quota import check_profile_shape, check_shape
from cotenant_gateway.core.validate.schema import Path, Report, did_you_mean, quote

PROCESS: Final = "process"
_POD_SPEC: Final[Path] = ("spec",)
_TEMPLATE: Final[Path] = ("spec", "template")


def check_kind(manifest: Mapping[str, Any], report: Report) -> Kind | None:
    """The kind, or None after an error that names what is supported."""
    name, version = manifest.get("kind"), manifest.get("apiVersion")
    if not isinstance(name, str):
        report.error(("kind",), "required: the kind of the object, such as Pod")
        return None
    kind = KINDS.get(name)
    if kind is None:
        why = "nothing acts on it yet" if name in NOT_YET else f"unknown kind{did_you_mean(name, KINDS)}"
        report.error(("kind",), f"{name} is not supported: {why}; supported are {', '.join(sorted(KINDS))}")
        return None
    if version not in kind.api_versions:
        report.error(("apiVersion",), f"expected {' or '.join(kind.api_versions)} for {name}, got {quote(version)}")
        return None
    return kind


def check_object(kind: Kind, manifest: Mapping[str, Any], report: Report, runtime: str = PROCESS) -> None:
    """Everything that can be said of one manifest by itself."""
    kind.shape.check(manifest, (), report)
    check_name(manifest.get("metadata"), ("metadata",), report)
    metadata = manifest.get("metadata")
    if not kind.namespaced and isinstance(metadata, Mapping) and metadata.get("namespace"):
        report.warn(("metadata", "namespace"), f"ignored: a {kind.name} belongs to no namespace")
    if report.errors:
        return  # what follows may rely on the shape
    if special := _SPECIAL.get(kind.name):
        special(manifest, report, runtime)


def check_pod(manifest: Mapping[str, Any], report: Report, at: Path, runtime: str) -> None:
    """``at`` is where metadata and spec stand: the root of a Pod, or a template."""
    spec = manifest["spec"]
    for index, container in enumerate(spec["containers"]):
        path: Path = (*at, "spec", "containers", index)
        if runtime == PROCESS:
            _check_command(container, path, report)
        _check_limits(container, path, report)
    _check_host_ports(spec, (*at, *_POD_SPEC), report)


def check_classes(manifest: Mapping[str, Any], report: Report, at: Path) -> None:
    """QoS × priority, on the pod as profiles and defaults left it."""
    try:
        pod = parse_pod(manifest, uid="")
    except QuantityError as problem:
        report.error((*at, "spec", "containers"), str(problem))
        return
    named = pod.labels.get(labels.QOS_CLASS)
    where: Path = (*at, "metadata", "labels", labels.QOS_CLASS)
    if named and pod.labelled_qos is QosClass.NONE:
        report.error(where, f"expected LSE, LSR, LS, BE or SYSTEM, got {named!r}")
        return
    for violation in check_combination(labelled_qos(pod.labels), raw_band(pod.labels, pod.priority), pod.requests):
        report.error((*at, *violation.field.split(".")), violation.message)


def _check_command(container: Mapping[str, Any], path: Path, report: Report) -> None:
    if container.get("command"):
        return
    has = "args without command need an image's entrypoint" if container.get("args") else "no command"
    report.error((*path, "command"), f"required: {has}, and {NO_IMAGE}; state the program to run")


def _check_limits(container: Mapping[str, Any], path: Path, report: Report) -> None:
    requests, limits = container_resources(container)
    for name, limit in limits.items():
        request = requests[name]
        if request > limit:
            report.error(
                (*path, "resources", "requests", name),
                f"the request {resources.render(name, request)} is more than the limit {resources.render(name, limit)}",
            )
        elif limit == 0 and name in (resources.CPU, resources.MEMORY):
            report.error((*path, "resources", "limits", name), "a limit of 0 lets nothing run; leave it out")


def _check_host_ports(spec: Mapping[str, Any], path: Path, report: Report) -> None:
    seen: dict[tuple[str, int], int] = {}
    for index, container in enumerate(spec["containers"]):
        for at, port in enumerate(container.get("ports") or ()):
            claim = (port.get("protocol") or "TCP", port.get("hostPort"))
            if claim[1] and claim in seen:
                where: Path = (*path, "containers", index, "ports", at, "hostPort")
                report.error(where, f"port {claim[1]} is already claimed by container {seen[claim]}")
            elif claim[1]:
                seen[claim] = index


def _pod(manifest: Mapping[str, Any], report: Report, runtime: str) -> None:
    check_pod(manifest, report, (), runtime)


def _deployment(manifest: Mapping[str, Any], report: Report, runtime: str) -> None:
    template = manifest["spec"]["template"]
    check_pod(template, report, _TEMPLATE, runtime)
    if template["spec"].get("restartPolicy", "Always") != "Always":
        report.error((*_TEMPLATE, "spec", "restartPolicy"), "a Deployment's pods restart Always; use a Job for others")
    selector = manifest["spec"]["selector"]
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        report.error(("spec", "selector"), "an empty selector would take every pod; name the template's labels")
    elif not selector_matches(selector, (template.get("metadata") or {}).get("labels") or {}):
        report.error((*_TEMPLATE, "metadata", "labels"), "the selector does not match the template's labels")


def _job(manifest: Mapping[str, Any], report: Report, runtime: str) -> None:
    spec = manifest["spec"]
    check_pod(spec["template"], report, _TEMPLATE, runtime)
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy not in ("Never", "OnFailure"):
        report.error(
            (*_TEMPLATE, "spec", "restartPolicy"), f"a Job's pods need Never or OnFailure, got {quote(policy)}"
        )
    if spec.get("completions") is None and (spec.get("parallelism") or 1) > 1:
        message = "required with parallelism above 1: how many pods have to succeed; a work queue is not built"
        report.error(("spec", "completions"), message)


def _budget(manifest: Mapping[str, Any], report: Report, _runtime: str) -> None:
    spec = manifest["spec"]
    given = [name for name in ("minAvailable", "maxUnavailable") if spec.get(name) is not None]
    if len(given) != 1:
        report.error(("spec",), f"expected exactly one of minAvailable and maxUnavailable, got {len(given)}")


def _quota(manifest: Mapping[str, Any], report: Report, _runtime: str) -> None:
    check_shape(manifest, report)


def _quota_profile(manifest: Mapping[str, Any], report: Report, _runtime: str) -> None:
    check_profile_shape(manifest, report)


def _profile(manifest: Mapping[str, Any], report: Report, _runtime: str) -> None:
    patch = manifest["spec"].get("patch")
    if patch is not None and not isinstance(patch, Mapping):
        report.error(("spec", "patch"), f"expected a part of a Pod, got {quote(patch)}")


_SPECIAL: Final = {
    "Pod": _pod,
    "Deployment": _deployment,
    "Job": _job,
    "PodDisruptionBudget": _budget,
    "ElasticQuota": _quota,
    "ElasticQuotaProfile": _quota_profile,
    "ClusterColocationProfile": _profile,
}
