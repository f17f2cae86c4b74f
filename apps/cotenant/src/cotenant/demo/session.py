"""What is measured, in order: the service's cost, the cost of a unit of batch work, then arm after arm."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cotenant.client import CotenantClient
from cotenant.demo import measure, plan, stats
from cotenant.demo.arms import ArmDriver, CotenantNeighbours, NoNeighbours, PlainNeighbours
from cotenant.demo.groups import ProcessGroups, equal_shares
from cotenant.demo.load import Load, LoadReport
from cotenant.demo.options import DemoOptions
from cotenant.demo.plan import Arm, Segment
from cotenant.demo.programs import NAMESPACE, SERVICE_NAME, Programs, service_pod
from cotenant.demo.stats import SegmentResult, Work
from cotenant.demo.watch import Pids, Reading, Watch, work_between
from cotenant.errors import CotenantError
from cotenant.stack import ports
from cotenant.stack.home import StackRecord
from cotenant_agent.cgroup.layout import Layout, open_tree

_SERVICE_TIMEOUT_S: Final = 30.0
_DRAIN_TIMEOUT_S: Final = 10.0
_SETTLE_S: Final = 0.7
_GUESSED_SERVICE_MS: Final = 2.0
_SERVICE_STEPS: Final = "25:3"
_UNITS_S: Final = 3.0
_PROMPT_MS: Final = 20.0


@dataclass(slots=True)
class Session:
    """Everything that was measured so far is in here at every moment, so that an interrupted run can show it."""

    options: DemoOptions
    programs: Programs
    layout: Layout
    groups: ProcessGroups
    stack_root: str
    cores: int
    say: Callable[[str], None]
    must_end_s: float
    service_ms: float = _GUESSED_SERVICE_MS
    calibrated: dict[str, Work] = field(default_factory=dict)
    segments: list[SegmentResult] = field(default_factory=list)
    explained: dict[str, Any] | None = None
    load_means: str | None = None
    _port: int = 0
    _zero_s: float | None = None

    @property
    def rates(self) -> dict[str, float]:
        return stats.unit_rates(stats.full_machine_work(self.calibrated, self.segments))

    def arms(self) -> dict[Arm, stats.ArmResult]:
        measured = {segment.arm for segment in self.segments}
        return {arm: stats.summarise(arm, self.segments, self.rates) for arm in Arm if arm in measured}

    async def run(self, client: CotenantClient, record: StackRecord) -> None:
        pids = await self._start_service(client, record)
        await self._calibrate_service(pids)
        drivers = self._drivers(client, record.node)
        begun_s = time.monotonic()
        for segment in plan.segments(self.options.rounds):
            if segment.number % len(Arm) == 0 and not self._has_time_for(segment.round, begun_s):
                self.say(f"time is nearly used up: no round {segment.round}")
                break
            # Twice a round, since the speed of a virtual machine drifts, and never right before the arm that is
            # admitted by room: a node that was just full has nothing to sell.
            if segment.arm in (Arm.UNCONTROLLED, Arm.ALONE):
                await self._calibrate_units(segment.number, pids)
            await self._measure(segment, drivers[segment.arm], pids)

    def _has_time_for(self, number: int, begun_s: float) -> bool:
        """Judged by the rounds so far: a busy machine makes them longer. Two rounds are run in any case."""
        now_s = time.monotonic()
        return number <= 2 or now_s + (now_s - begun_s) / (number - 1) <= self.must_end_s

    async def _start_service(self, client: CotenantClient, record: StackRecord) -> Pids:
        self._port = ports.choose("the service", None, None)
        await client.apply(service_pod(self.programs, self._port, self.cores))

        async def ready() -> bool:
            pod = await client.pod(SERVICE_NAME, NAMESPACE)
            return pod is not None and pod["phase"] == "Running" and bool(pod.get("ready"))

        try:
            await client.wait_for(ready, timeout_s=_SERVICE_TIMEOUT_S)
        except TimeoutError:
            raise await _not_ready(client) from None
        self.say(f"the service is ready on port {self._port}: {self.cores} worker processes, class LS, band prod")
        service = measure.pids_of([self.programs.service, str(self._port)])
        stack = {record.process.pid, *(each.process.pid for each in record.services)}
        if record.nats is not None:
            stack.add(record.nats.pid)
        return Pids(service=service, load=(), stack=sorted(stack))

    def _drivers(self, client: CotenantClient, node: str) -> Mapping[Arm, ArmDriver]:
        batch = plan.neighbours(self.cores)
        balloon = plan.balloon_bytes(measure.available_memory_bytes())
        equal = equal_shares(self.layout, self.stack_root, len(batch))
        at_most_s = self.options.segment_s + 60
        granted_mib = plan.NEIGHBOUR_MEMORY_BYTES // plan.MIB
        self.say(
            f"{len(batch)} neighbours ask for {plan.requested_milli(batch) / 1000:g} cores together; "
            f"one of them takes {balloon // plan.MIB} MiB where {granted_mib} MiB were granted"
        )
        tree = open_tree(self.layout, self.stack_root)
        return {
            Arm.ALONE: NoNeighbours(),
            Arm.UNCONTROLLED: PlainNeighbours(batch, self.programs, self.groups, equal, balloon, at_most_s),
            Arm.WEIGHTS: PlainNeighbours(batch, self.programs, self.groups, None, balloon, at_most_s),
            Arm.COTENANT: CotenantNeighbours(batch, self.programs, client, tree, node, balloon, self._explain),
        }

    def _explain(self, explained: dict[str, Any]) -> None:
        self.explained = explained

    async def _calibrate_service(self, pids: Pids) -> None:
        """CPU of one whole request, HTTP included: what the rate of a load in percent of the machine follows from."""
        before = measure.cpu_seconds(pids.service)
        load = await self._start_load("calibrate", _SERVICE_STEPS, self.options.seed)
        try:
            found = await load.finish()
        finally:
            await load.stop()
        used_s = measure.cpu_seconds(pids.service) - before
        self.service_ms = 1000 * used_s / max(len(found.samples), 1)
        self.load_means = load.means
        self.say(
            f"one request costs {self.service_ms:.2f} ms of CPU, "
            f"so 40 % of the machine is {0.4 * self.cores / self.service_ms * 1000:.0f} requests a second"
        )

    async def _calibrate_units(self, number: int, pids: Pids) -> None:
        """Often, since the speed of a virtual machine changes: all figures of batch work rest on this."""
        batch = plan.calibrators(self.cores)
        # The service idles meanwhile, so a weight like its own takes nothing from it.
        equal = equal_shares(self.layout, self.stack_root, 1)
        driver = PlainNeighbours(batch, self.programs, self.groups, equal, 0, _UNITS_S + 30)
        run = f"calibrate{number}"
        try:
            await driver.start(run)
            watch = Watch(driver, self.programs, run, pids, time.monotonic() + _SETTLE_S, _UNITS_S)
            first, last = await watch.watch()
        finally:
            await driver.stop()
        self.calibrated = stats.total_work([self.calibrated, work_between(first, last, batch)])
        shown = ", ".join(f"{kind} {rate:.0f}" for kind, rate in sorted(self.rates.items()))
        self.say(f"units a core-second with every core busy: {shown}")

    async def _start_load(self, name: str, steps: str, seed: int) -> Load:
        command = [
            *(self.programs.python, self.programs.load, "--announce", "--url", f"http://127.0.0.1:{self._port}/"),
            *("--workers", str(self.cores), "--cores", str(self.cores), "--service-ms", f"{self.service_ms:.6f}"),
            *("--steps", steps, "--seed", str(seed), "--timeout", "2"),
        ]
        return await Load.start(command, self.programs.user, self.programs.counters / f"{name}.csv")

    async def _measure(self, segment: Segment, driver: ArmDriver, pids: Pids) -> None:
        run = f"{segment.number}-{segment.arm}"
        steps = plan.load_steps(self.options.segment_s)
        try:
            await driver.start(run)
            await asyncio.sleep(_SETTLE_S)
            # One seed per round: within it all arms see the same arrivals.
            load = await self._start_load(run, steps, self.options.seed + segment.round)
            try:
                seen = Pids(pids.service, [load.pid], pids.stack)
                watch = Watch(driver, self.programs, run, seen, load.started_s, self.options.segment_s)
                first, last = await watch.watch()
                found = await load.finish()
            finally:
                await load.stop()
        finally:
            await driver.stop()
        self._keep(segment, watch, (first, last), found)
        await self._drained()

    def _keep(self, segment: Segment, watch: Watch, ends: tuple[Reading, Reading], found: LoadReport) -> None:
        if self._zero_s is None:
            self._zero_s = watch.started_s
        first, last = ends
        done = SegmentResult(
            arm=segment.arm,
            round=segment.round,
            started_s=watch.started_s - self._zero_s,
            seconds=last.at_s - first.at_s,
            machine_cpu_s=last.machine.machine_s - first.machine.machine_s,
            busy_cpu_s=last.machine.busy_s - first.machine.busy_s,
            service_cpu_s=last.service_cpu_s - first.service_cpu_s,
            load_cpu_s=last.load_cpu_s - first.load_cpu_s,
            stack_cpu_s=last.stack_cpu_s - first.stack_cpu_s,
            samples=found.samples,
            work=work_between(first, last, watch.driver.neighbours),
            memory_over_grant_bytes=watch.memory_over_grant_bytes,
            service_major_faults=last.service_major_faults - first.service_major_faults,
            restarts=watch.restarts,
            observations=watch.observations,
        )
        self.segments.append(done)
        self.say(self._line(segment, done))

    def _line(self, segment: Segment, done: SegmentResult) -> str:
        figures = stats.summarise(segment.arm, [done], self.rates)
        total = self.options.rounds * len(Arm)
        text = (
            f"{segment.number + 1:2}/{total} {segment.arm:<12} p50 {figures.p50_ms or 0:8.2f} ms"
            f"  p99 {figures.p99_ms or 0:8.2f} ms  busy {figures.busy:4.0%}"
        )
        end = done.observations[-1] if done.observations else None
        return text if end is None or not done.work else f"{text}  batch {end.admitted} running, {end.pending} pending"

    async def _drained(self) -> None:
        """Return when the service answers promptly three times running: no backlog leaks into the next arm."""
        deadline = time.monotonic() + _DRAIN_TIMEOUT_S
        prompt = 0
        while prompt < 3 and time.monotonic() < deadline:
            asked = time.monotonic()
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(_probe(self._port), 2.0)
            prompt = prompt + 1 if (time.monotonic() - asked) * 1000 < _PROMPT_MS else 0
            await asyncio.sleep(0.1)


async def _not_ready(client: CotenantClient) -> CotenantError:
    pod = await client.pod(SERVICE_NAME, NAMESPACE) or {}
    why = pod.get("message") or pod.get("reason") or "no reason given"
    return CotenantError(f"the service is not ready after {_SERVICE_TIMEOUT_S:g} s: {pod.get('phase')}, {why}")


async def _probe(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()


def journalled(path: Path) -> int:
    """Knobs whose first value the writer put on record before it wrote them."""
    try:
        return path.read_text().count('"original"')
    except OSError:
        return 0
