"""The environment and the argument list of a workload, as Kubernetes would build them. Pure."""

import re
from collections.abc import Mapping, Sequence

from cotenant_agent.runtime.launch import ContainerLaunch, EnvVar, LaunchError, PodLaunch

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOOPBACK = "127.0.0.1"
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_MAPPED_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


def expand(text: str, known: Mapping[str, str]) -> str:
    """`$(NAME)` becomes its value, `$$` one dollar; an unknown name stays as written (it may be shell)."""

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        return "$" if name is None else known.get(name, found.group(0))

    return _REFERENCE.sub(value, text)


def field_value(path: str, pod: PodLaunch) -> str | None:
    plain = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "spec.nodeName": pod.node,
        # A pod is a plain process here and shares the machine's network; loopback is where it is reached.
        "status.podIP": LOOPBACK,
        "status.hostIP": LOOPBACK,
    }
    if path in plain:
        return plain[path]
    mapped = _MAPPED_FIELD.fullmatch(path)
    if mapped is None:
        return None
    source = pod.labels if mapped.group(1) == "labels" else pod.annotations
    return source.get(mapped.group(2), "")


def _resolve(index: int, variable: EnvVar, pod: PodLaunch, known: Mapping[str, str]) -> str:
    if not variable.name or "=" in variable.name or "\0" in variable.name + variable.value:
        raise LaunchError(f"env[{index}].name", f"{variable.name!r} is not a name an environment can hold")
    if variable.field_path is None:
        return expand(variable.value, known)
    value = field_value(variable.field_path, pod)
    if value is None:
        raise LaunchError(
            f"env[{index}].valueFrom.fieldRef",
            f"{variable.field_path!r} is not known here; known are metadata.name, metadata.namespace, metadata.uid, "
            "metadata.labels['…'], metadata.annotations['…'], spec.nodeName, status.podIP and status.hostIP",
        )
    return value


def declared_env(pod: PodLaunch, container: ContainerLaunch) -> dict[str, str]:
    """The manifest's own variables; each may refer to those above it."""
    known: dict[str, str] = {}
    for index, variable in enumerate(container.env):
        known[variable.name] = _resolve(index, variable, pod, known)
    return known


def workload_env(declared: Mapping[str, str], user: str, home: str) -> dict[str, str]:
    """Starts from nothing, never from the agent's own environment: that one holds tokens."""
    return {"PATH": DEFAULT_PATH, "HOME": home, "LANG": "C.UTF-8", "USER": user, **declared}


def argument_list(container: ContainerLaunch, declared: Mapping[str, str]) -> list[str]:
    if not container.command and not container.args:
        raise LaunchError(
            "command", "neither command nor args is set, and a process node runs no images: state the command to run"
        )
    if not container.command:
        raise LaunchError(
            "command",
            "args without command would be handed to the image's entrypoint, and a process node runs no images: "
            f"state the command; args are {list(container.args)}",
        )
    words = _without_nul([*container.command, *container.args])
    return [expand(word, declared) for word in words]


def _without_nul(words: Sequence[str]) -> Sequence[str]:
    for word in words:
        if "\0" in word:
            raise LaunchError("command", f"{word!r} holds a NUL character, which no program can be given")
    return words
