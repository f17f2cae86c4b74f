"""What must be true once the faults are over. Each sentence that comes out is a violation."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cotenant.client import CotenantClient
from cotenant.errors import CotenantError
from cotenant.faults.fleet import Fleet
from cotenant.faults.load import CPU_MILLI, MEMORY_BYTES, QUOTA, Load, evictions_by_command
from cotenant.faults.processes import PodProcess, pod_processes
from cotenant_common.bus.nats_bus import NatsBus, connect
from cotenant_common.bus.protocol import BusError, Entry, SnapshotDone
from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.buckets import BucketSpec, is_bookkeeping
from cotenant_common.contracts.messages.base import Message
from cotenant_common.contracts.messages.state import Binding, PodStatusRecord, QuotaTreeStatus, SpecRecord

M = TypeVar("M", bound=Message)


@dataclass(slots=True)
class Watch:
    """Looked at all the time: no pod has two processes, and none that nobody touched gets another one."""

    run: str
    seen: dict[str, PodProcess] = field(default_factory=dict)
    violations: dict[str, None] = field(default_factory=dict)

    def look(self, load: Load) -> None:
        evicted = set(load.evicted.values())
        for name, processes in pod_processes(self.run).items():
            if len(processes) > 1:
                self.violations[f"pod {name} runs {len(processes)} times at once"] = None
            first = self.seen.setdefault(name, processes[0])
            same = any((p.pid, p.start_ticks) == (first.pid, first.start_ticks) for p in processes)
            if not same and name not in evicted:
                self.violations[f"pod {name} was started again, though nobody evicted it"] = None


@asynccontextmanager
async def own_bus(fleet: Fleet) -> AsyncIterator[NatsBus]:
    bus = await connect([fleet.nats.url], name="faults", token=fleet.home.token(fleet.home.nats_token), timeout_s=10)
    try:
        yield bus
    finally:
        await bus.close()


async def unsettled(fleet: Fleet, client: CotenantClient, load: Load) -> list[str]:
    """What is not yet, or never will be, as it should; asked again until it is empty or time is up."""
    try:
        pods = {pod["name"]: pod for pod in await client.pods("default")}
        quotas = {quota["name"]: quota for quota in await client.top_quotas()}
        async with own_bus(fleet) as bus:
            stored = await _Stored.read(bus)
    except (CotenantError, BusError) as error:
        return [f"nobody answers: {error}"]
    return [
        *_pods(load, pods),
        *_processes(load, pods, fleet.cgroup_root),
        *_ledgers(load, pods, stored),
        *_quota(load, quotas.get(QUOTA)),
    ]


async def evictions(client: CotenantClient, load: Load) -> list[str]:
    """Every removal was told exactly once, and none that nobody asked for happened."""
    events = [event async for event in client.events(since="1d", follow=False)]
    counts = evictions_by_command(events)
    repeated = [f"eviction {command} was told {n} times" for command, n in counts.items() if n > 1]
    foreign = [f"somebody removed a pod with command {command}" for command in counts if command not in load.evicted]
    others = [
        f"{event['object']} was removed: {event.get('reason')}: {event.get('message')}"
        for event in events
        if event["type"] == "pod.evicted" and not (event.get("data") or {}).get("command_id")
    ]
    return [*repeated, *foreign, *others]


def _pods(load: Load, pods: Mapping[str, Mapping[str, Any]]) -> list[str]:
    missing = [f"pod {name} is lost" for name in load.wanted if name not in pods]
    waiting = [
        f"pod {name} is {pod['phase']}: {pod.get('reason')}: {pod.get('message')}"
        for name in load.wanted
        if (pod := pods.get(name)) is not None and (pod["phase"] != "Running" or not pod["ready"])
    ]
    back = [f"pod {name} was deleted and is {pod['phase']}" for name, pod in pods.items() if name in load.removed]
    return [*missing, *waiting, *back]


def _processes(load: Load, pods: Mapping[str, Mapping[str, Any]], cgroup_root: str) -> list[str]:
    found = pod_processes(load.run)
    counts = {name: len(found.get(name, ())) for name in load.wanted}
    problems = [f"pod {name} has {count} processes" for name, count in counts.items() if count != 1]
    problems += [f"pod {name} was deleted and has a process" for name in found if name in load.removed]
    for name, processes in found.items() if os.getuid() == 0 else ():
        pod = pods.get(name)
        if pod is not None and not all(_in_group(process, cgroup_root, pod) for process in processes):
            problems.append(f"pod {name} is outside of its cgroup: nobody enforces it")
    return problems


def _in_group(process: PodProcess, cgroup_root: str, pod: Mapping[str, Any]) -> bool:
    lines = [line for line in process.cgroups.splitlines() if f"/{cgroup_root}/{pod['node']}/" in line]
    return bool(lines) and all(f"pod{pod['uid']}" in line for line in lines)


@dataclass(frozen=True, slots=True)
class _Stored:
    specs: Mapping[str, SpecRecord]
    bindings: Mapping[str, Binding]
    statuses: Mapping[str, PodStatusRecord]
    quotas: Mapping[str, QuotaTreeStatus]

    @classmethod
    async def read(cls, bus: NatsBus) -> "_Stored":
        return cls(
            await _all(bus, buckets.SPECS, SpecRecord),
            await _all(bus, buckets.BINDINGS, Binding),
            await _all(bus, buckets.PODSTATUS, PodStatusRecord),
            await _all(bus, buckets.QUOTASTATUS, QuotaTreeStatus),
        )


async def _all(bus: NatsBus, spec: BucketSpec, model: type[M]) -> dict[str, M]:
    bucket = await bus.bucket(spec)
    found: dict[str, M] = {}
    async with aclosing(bucket.watch()) as watch:
        async for item in watch:
            if isinstance(item, SnapshotDone):
                break
            if isinstance(item, Entry) and item.value is not None and not is_bookkeeping(item.key):
                found[item.key] = codec.decode(model, item.value)
    return found


def _ledgers(load: Load, pods: Mapping[str, Mapping[str, Any]], stored: _Stored) -> list[str]:
    uids = {pods[name]["uid"]: name for name in load.wanted if name in pods}
    bound: dict[str, list[str]] = {}
    for binding in stored.bindings.values():
        bound.setdefault(binding.uid, []).append(binding.node)
    counts = {name: len(bound.get(uid, ())) for uid, name in uids.items()}
    problems = [f"pod {name} is bound {count} times" for name, count in counts.items() if count != 1]
    problems += [f"a binding of {uid}, which is gone, is left" for uid in bound if uid not in uids]
    problems += [
        f"a status of {status.namespace}/{status.name} ({status.uid}), which is gone, is left"
        for status in stored.statuses.values()
        if status.uid not in uids
    ]
    return problems


def _quota(load: Load, quota: Mapping[str, Any] | None) -> list[str]:
    if quota is None:
        return [f"quota {QUOTA} is unknown"]
    truth = {"cpu": CPU_MILLI * len(load.wanted), "memory": MEMORY_BYTES * len(load.wanted)}
    used = {name: quota["used"].get(name, 0) for name in truth}
    return [] if used == truth else [f"quota {QUOTA} is charged {used}, its pods ask for {truth}"]


def summary(problems: Sequence[str]) -> str:
    return "; ".join(problems) or "nothing wrong"
