"""``python -m cotenant_scheduler.bus_load URL …``: the other side of ``bus_bench``, in a process of its own.

Writes the nodes, then obeys one word per line on standard input (``noise``, ``submit``) and answers each with a line
of JSON. Times are those of its own clock: from the answer to the write of a pod's spec to the sight of its binding.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from cotenant_common.bus.nats_bus import connect
from cotenant_common.bus.protocol import Bucket, Bus, Delete, Put
from cotenant_common.contracts import buckets, codec
from cotenant_common.contracts.messages.state import SpecRecord
from cotenant_common.contracts.messages.telemetry import NodeUsage, PodUsage, Usage
from cotenant_common.contracts.subjects import NODE_USAGE
from cotenant_common.runtime import requests
from cotenant_common.testing import builders
from cotenant_scheduler.bench import CHURN_PERCENT, NOISY_WAITING, TEMPLATES, Mix, percentile_ms

_CPU, _MEMORY = "96", "512Gi"
_BATCH: Final = 250
_NOISY_PODS_PER_S: Final = 100
_PODS_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Load:
    nodes: int
    pods: int
    mix: Mix
    noisy: bool

    def arguments(self) -> list[str]:
        return [str(self.nodes), str(self.pods), self.mix, "noisy" if self.noisy else "quiet"]


def read_load(arguments: Sequence[str]) -> Load:
    nodes, pods, mix, noise = arguments
    return Load(int(nodes), int(pods), next(known for known in get_args(Mix) if known == mix), noise == "noisy")


async def serve(url: str, load: Load) -> None:
    bus = await connect([url], name="load")
    try:
        bench = _Bench(bus, load, await bus.bucket(buckets.SPECS))
        await bench.write_nodes()
        await _turn("noise")
        if load.noisy:
            await bench.fill_with_infeasible()
        await _turn("submit")
        _say(await bench.run())
    finally:
        await bus.close()


async def _turn(expected: str) -> None:
    _say({})
    word = (await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)).strip()
    if word != expected:
        raise SystemExit(f"expected {expected!r} on standard input, got {word!r}")


def _say(result: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


class _Bench:
    def __init__(self, bus: Bus, load: Load, specs: Bucket) -> None:
        self._bus = bus
        self._load = load
        self._specs = specs
        self._submitted: dict[str, float] = {}
        self._bound: dict[str, float] = {}
        self._all_bound = asyncio.Event()
        self._keys: dict[str, str] = {}

    async def write_nodes(self) -> None:
        names = self._names()
        inventory = {name: builders.node_inventory(name, cpu=_CPU, memory=_MEMORY, pods=256) for name in names}
        await _put(
            await self._bus.bucket(buckets.NODES), {name: codec.encode(record) for name, record in inventory.items()}
        )
        await self._write(
            [builders.spec_record(builders.node_manifest(name, cpu=_CPU, memory=_MEMORY)) for name in names]
        )

    def _names(self) -> list[str]:
        return [f"node-{i:05}" for i in range(self._load.nodes)]

    async def _write(self, records: Sequence[SpecRecord]) -> None:
        await _put(self._specs, {builders.spec_key(record): codec.encode(record) for record in records})

    async def fill_with_infeasible(self) -> None:
        """Until a record says why each of them waits."""
        told: dict[str, None] = {}
        records = [_record(f"big-{i:05}", 200_000 + i, 1 << 30, i) for i in range(NOISY_WAITING)]
        await self._write(records)
        podsched = await self._bus.bucket(buckets.PODSCHED)
        async for item in podsched.watch():
            key = getattr(item, "key", None)
            if key is not None and not buckets.is_bookkeeping(key):
                told[key] = None
            if len(told) >= len(records):
                return

    async def run(self) -> dict[str, Any]:
        bindings = await self._bus.bucket(buckets.BINDINGS)
        tasks = [asyncio.create_task(self._watch(bindings))]
        if self._load.noisy:
            tasks.append(asyncio.create_task(self._report_usage()))
        began, cpu_began = time.perf_counter(), time.process_time()
        await (self._trickle() if self._load.noisy else self._burst())
        await self._all_bound.wait()
        for task in tasks:
            task.cancel()
        elapsed_s = max(self._bound.values()) - began
        latencies = sorted(self._bound[uid] - at for uid, at in self._submitted.items())
        return {
            "placed": len(self._bound),
            "seconds": round(elapsed_s, 3),
            "load_cpu_seconds": round(time.process_time() - cpu_began, 3),
            "pods_per_s": round(self._load.pods / elapsed_s, 1),
            "p50_ms": percentile_ms(latencies, 50),
            "p99_ms": percentile_ms(latencies, 99),
        }

    async def _burst(self) -> None:
        for start in range(0, self._load.pods, _BATCH):
            await self._submit(range(start, min(start + _BATCH, self._load.pods)))

    async def _trickle(self) -> None:
        """A hundred pods a second; a tenth of those that were bound end again."""
        due = time.perf_counter()
        for i in range(self._load.pods):
            await self._submit([i])
            if i % (100 // CHURN_PERCENT) == 0:
                await self._end_one()
            due += 1 / _NOISY_PODS_PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))

    async def _submit(self, numbers: Sequence[int]) -> None:
        records = [self._pod(i) for i in numbers]
        await self._write(records)
        now = time.perf_counter()
        for record in records:
            self._submitted[record.uid] = now
            self._keys[record.uid] = builders.spec_key(record)

    def _pod(self, i: int) -> SpecRecord:
        kind = i % {"one": 1, "templates": TEMPLATES, "distinct": self._load.pods}[self._load.mix]
        return _record(f"pod-{i:07}", 500 + kind % 3_001, (1 << 30) + kind, i)

    async def _end_one(self) -> None:
        uid = next((uid for uid in self._keys if uid in self._bound), None)
        if uid is not None:
            await self._specs.batch([Delete(self._keys.pop(uid))])

    async def _watch(self, bindings: Bucket) -> None:
        async for item in bindings.watch():
            key = getattr(item, "key", None)
            if key is None or buckets.is_bookkeeping(key):
                continue
            self._bound.setdefault(key.partition(".")[0], time.perf_counter())
            if len(self._bound) == self._load.pods:
                self._all_bound.set()

    async def _report_usage(self) -> None:
        """Every node once a second, one after the other."""
        due, sent = time.perf_counter(), 0
        names = self._names()
        while True:
            name = names[sent % len(names)]
            await requests.publish(self._bus, NODE_USAGE, _usage(name, sent), node=name)
            sent += 1
            due += 1 / len(names)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))


async def _put(bucket: Bucket, values: dict[str, bytes]) -> None:
    operations = [Put(key, value) for key, value in values.items()]
    for start in range(0, len(operations), _BATCH):
        await bucket.batch(operations[start : start + _BATCH])


def _record(name: str, cpu_milli: int, memory_bytes: int, i: int) -> SpecRecord:
    manifest = builders.pod_manifest(name, cpu=f"{cpu_milli}m", memory=str(memory_bytes))
    return builders.spec_record(manifest, uid=f"uid-{name}", created_ms=i)


def _usage(node: str, sent: int) -> NodeUsage:
    shown = [
        PodUsage(
            uid=f"{node}-{i}",
            namespace="default",
            name=f"pod-{i}",
            qos="LS",
            band="koord-prod",
            cpu_milli=100 + (sent + i) % 400,
            memory_bytes=1 << 28,
        )
        for i in range(_PODS_SHOWN)
    ]
    return NodeUsage(
        node=node,
        at_ms=time.time_ns() // 1_000_000,
        interval_ms=1_000,
        usage=Usage(cpu_milli=(sent * 37) % 20_000, memory_bytes=((sent * 53) % 64) << 30),
        system=Usage(cpu_milli=100, memory_bytes=1 << 28),
        pods=shown,
    )


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], read_load(sys.argv[2:])))
