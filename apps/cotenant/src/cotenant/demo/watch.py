"""Takes the counters of one segment: at its first and last moment, and twice a second between."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cotenant.demo import measure
from cotenant.demo.arms import Admission, ArmDriver
from cotenant.demo.measure import Counter, MachineTimes
from cotenant.demo.plan import Neighbour
from cotenant.demo.programs import Programs
from cotenant.demo.stats import Observation, Work, memory_over_grant
from cotenant.errors import CotenantError

EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Pids:
    service: Sequence[int]
    load: Sequence[int]
    stack: Sequence[int]


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters of one moment."""

    at_s: float
    machine: MachineTimes
    service_cpu_s: float
    load_cpu_s: float
    stack_cpu_s: float
    service_major_faults: int
    counters: dict[str, Counter]

    def batch_cpu_s(self) -> float:
        return sum(counter.work.cpu_s for counter in self.counters.values())


@dataclass(slots=True)
class Watch:
    """Measures from `started_s` on the monotonic clock for `seconds`."""

    driver: ArmDriver
    programs: Programs
    run: str
    pids: Pids
    started_s: float
    seconds: float
    observations: list[Observation] = field(default_factory=list)
    memory_over_grant_bytes: int = 0
    restarts: int = 0

    def read(self) -> Reading:
        neighbours: Sequence[Neighbour] = self.driver.neighbours
        return Reading(
            at_s=time.monotonic() - self.started_s,
            machine=measure.machine_times(),
            service_cpu_s=measure.cpu_seconds(self.pids.service),
            load_cpu_s=measure.cpu_seconds(self.pids.load),
            stack_cpu_s=measure.cpu_seconds(self.pids.stack),
            service_major_faults=measure.major_faults(self.pids.service),
            counters={each.name: measure.read_counter(self.programs.counter(each, self.run)) for each in neighbours},
        )

    async def watch(self) -> tuple[Reading, Reading]:
        """The readings at both ends."""
        await self._until(0.0)
        first = last = self.read()
        while last.at_s < self.seconds - 0.01:
            await self._until(min(last.at_s + EVERY_S, self.seconds))
            reading = self.read()
            self._note(last, reading, await self._admission())
            last = reading
        return first, last

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, self.started_s + at_s - time.monotonic()))

    async def _admission(self) -> Admission:
        # The figures do not depend on it: a gateway that is slow for a moment costs a point in the picture.
        with contextlib.suppress(CotenantError, TimeoutError):
            async with asyncio.timeout(EVERY_S):
                return await self.driver.admission()
        last = self.observations[-1] if self.observations else None
        return Admission() if last is None else Admission(last.admitted, last.pending, last.cap_milli, self.restarts)

    def _note(self, before: Reading, now: Reading, admission: Admission) -> None:
        seconds = max(now.at_s - before.at_s, 1e-6)
        machine_s = now.machine.machine_s - before.machine.machine_s
        granted = {each.name: each.granted_memory_bytes for each in self.driver.neighbours}
        over = memory_over_grant(measure.resident_of(now.counters), granted)
        self.memory_over_grant_bytes = max(self.memory_over_grant_bytes, over)
        self.restarts = max(self.restarts, admission.restarts)
        self.observations.append(
            Observation(
                at_s=now.at_s,
                busy_ratio=(now.machine.busy_s - before.machine.busy_s) / machine_s if machine_s > 0 else 0.0,
                service_cores=(now.service_cpu_s - before.service_cpu_s) / seconds,
                batch_cores=(now.batch_cpu_s() - before.batch_cpu_s()) / seconds,
                admitted=admission.running,
                pending=admission.pending,
                cap_milli=admission.cap_milli,
                memory_over_grant_bytes=over,
            )
        )


def work_between(first: Reading, last: Reading, neighbours: Sequence[Neighbour]) -> dict[str, Work]:
    """Work of each kind; a neighbour's kind is that of its work."""
    found: dict[str, Work] = {}
    for each in neighbours:
        done = last.counters[each.name].work - first.counters[each.name].work
        found[each.work_kind] = found.get(each.work_kind, Work()) + done
    return found
