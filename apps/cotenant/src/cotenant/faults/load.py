"""Pods that are submitted, evicted and deleted all the while, and what must be true of each afterwards."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from cotenant.client import CotenantClient
from cotenant.errors import CotenantError, NoConnectionError, NotFoundError, RefusedError
from cotenant.faults.processes import MARK

QUOTA: Final = "faults"
CPU_MILLI: Final = 10
MEMORY_BYTES: Final = 8 << 20
_MOST_PODS: Final = 12
_PAUSE_S: Final = (0.05, 0.4)
_RETRY_S: Final = 0.3


def pod_manifest(run: str, name: str) -> dict[str, Any]:
    """A process that only waits, charged to a quota and to its node; as nobody where we may choose."""
    user = 65_534 if os.getuid() == 0 else os.getuid()
    amounts = {"cpu": f"{CPU_MILLI}m", "memory": str(MEMORY_BYTES)}
    container = {
        "name": "main",
        "command": ["/bin/sleep", "86400"],
        "env": [{"name": MARK, "value": f"{run}/{name}"}],
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {"runAsUser": user},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"koordinator.sh/qosClass": "LS", "quota.scheduling.koordinator.sh/name": QUOTA},
        },
        "spec": {
            "priorityClassName": "koord-prod",
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }


QUOTA_MANIFEST: Final = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "ElasticQuota",
    "metadata": {"name": QUOTA},
    "spec": {"min": {"cpu": "500m", "memory": "512Mi"}, "max": {"cpu": "1", "memory": "1Gi"}},
}


@dataclass(slots=True)
class Load:
    """``wanted`` are the pods that must run in the end; ``untouched`` those that nobody evicted: same process still."""

    run: str
    clients: Sequence[CotenantClient]
    random: Random
    wanted: dict[str, None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    evicted: dict[str, str] = field(default_factory=dict)
    """Command id → name of the pod, of every eviction that was granted or may have been."""
    actions: dict[str, int] = field(default_factory=dict)
    stopping: bool = False
    _made: int = 0

    async def prepare(self) -> None:
        await self._until_done(lambda client: client.apply(QUOTA_MANIFEST))

    async def go_on(self) -> None:
        """Until ``stopping``; an action that was begun is retried until it has an answer: else nobody would know it."""
        while not self.stopping:
            await self.act()
            await asyncio.sleep(self.random.uniform(*_PAUSE_S))

    async def act(self) -> None:
        choices: dict[Callable[[], Any], int] = {self.submit: 4 if len(self.wanted) < _MOST_PODS else 0}
        if len(self.wanted) > 2:
            choices |= {self.delete: 2, self.evict: 2}
        chosen = self.random.choices(list(choices), weights=list(choices.values()))[0]
        self.actions[chosen.__name__] = self.actions.get(chosen.__name__, 0) + 1
        await chosen()

    async def submit(self) -> None:
        self._made += 1
        name = f"p{self._made}"
        # Wanted from now on: whether a lost answer was a yes does not matter, the same request is sent again.
        self.wanted[name] = None
        await self._until_done(lambda client: client.apply(pod_manifest(self.run, name)))

    async def delete(self) -> None:
        name = self.random.choice(list(self.wanted))
        del self.wanted[name]
        self.removed[name] = None
        await self._until_done(lambda client: client.delete("Pod", name))

    async def evict(self) -> None:
        name = self.random.choice(list(self.wanted))
        pods = await self._until_done(lambda client: client.pods("default"))
        view = next((pod for pod in pods or () if pod["name"] == name and pod["phase"] == "Running"), None)
        if view is None:
            return
        command = f"{self.run}-evict-{len(self.evicted)}"
        self.evicted[command] = name
        body = {"id": command, "victims": [{"namespace": "default", "name": name, "uid": view["uid"]}], "kind": "drain"}
        await self._until_done(lambda client: client.ask_gate(body))

    async def _until_done(self, ask: Callable[[CotenantClient], Any]) -> Any:
        """The answer, or None for a refusal that asking again would not change."""
        at = 0
        while True:
            try:
                return await ask(self.clients[at % len(self.clients)])
            except NoConnectionError:
                at += 1
                await asyncio.sleep(_RETRY_S)
            except (NotFoundError, RefusedError):
                return None
            except CotenantError as error:
                # A pod that is being deleted or has moved on meanwhile: the world is another one than we thought.
                raise AssertionError(f"the gateway did not understand us: {error}") from error


def evictions_by_command(events: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How often each command was told to have removed its pod."""
    counts: dict[str, int] = {}
    for event in events:
        command = (event.get("data") or {}).get("command_id")
        if event["type"] == "pod.evicted" and command:
            counts[command] = counts.get(command, 0) + 1
    return counts
