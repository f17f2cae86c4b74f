"""The part of a trace that is replayed, read in one stream: memory grows with what is kept, not with the trace."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from cotenant_simulator.core import durations
from cotenant_simulator.replay.model import Item, Job, LeftOut, Machine, Series, Service, TraceError


class EmptyWindowError(TraceError):
    """Nothing of the trace falls into the window."""


ReadAgain = Callable[[LeftOut], Iterator[Item]]
"""The trace from its beginning; what is left out is told to the one given."""


@dataclass(frozen=True, slots=True)
class Window:
    """``from_ms`` None: from the first arrival; ``for_ms`` None: to the end."""

    from_ms: int | None
    for_ms: int | None
    limit: int
    most_members: int


@dataclass(slots=True)
class Gathered:
    """``*_seen`` count all there were in the window. Times of jobs and series count from ``start_ms``."""

    start_ms: int
    machines: list[Machine] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)
    services_seen: int = 0
    jobs: list[Job] = field(default_factory=list)
    jobs_seen: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)

    def beside(self, other: "Gathered") -> "Gathered":
        """Both at once, each from its own start."""
        counts = {**self.left_out.counts, **other.left_out.counts}
        return Gathered(
            self.start_ms,
            self.machines or other.machines,
            [*self.services, *other.services],
            self.services_seen + other.services_seen,
            sorted([*self.jobs, *other.jobs], key=lambda job: job.submit_ms),
            self.jobs_seen + other.jobs_seen,
            LeftOut(counts, {**self.left_out.places, **other.left_out.places}),
        )


def gather(read: ReadAgain, window: Window, left_out: LeftOut) -> Gathered:
    """Raise EmptyWindowError."""
    start_ms = window.from_ms if window.from_ms is not None else _first_arrival(read)
    until_ms = None if window.for_ms is None else start_ms + window.for_ms
    found = Gathered(start_ms, left_out=left_out)
    kept: list[tuple[int, int, Job]] = []
    arrivals: list[int] = []
    for order, item in enumerate(read(left_out)):
        if isinstance(item, Machine):
            found.machines.append(item)
        elif isinstance(item, Service):
            _keep_service(found, item, window, until_ms)
        else:
            arrivals = _widened(arrivals, item.submit_ms)
            if item.submit_ms >= start_ms and (until_ms is None or item.submit_ms < until_ms):
                found.jobs_seen += 1
                _keep_job(kept, window.limit, (-item.submit_ms, -order, item))
    found.jobs = [_placed(job, start_ms, window, left_out) for *_, job in sorted(kept, reverse=True)]
    if not (found.jobs or found.services or (found.machines and not arrivals)):
        raise EmptyWindowError(_nothing(window, start_ms, arrivals))
    return found


def _placed(job: Job, start_ms: int, window: Window, left_out: LeftOut) -> Job:
    members = min(job.members, window.most_members)
    if members < job.members:
        left_out.add(job.name, f"members of jobs with more than {window.most_members}", job.members - members)
    return replace(job, submit_ms=job.submit_ms - start_ms, members=members)


def _keep_job(kept: list[tuple[int, int, Job]], limit: int, one: tuple[int, int, Job]) -> None:
    """The heap's top is the latest kept, which goes first."""
    if len(kept) < limit:
        heapq.heappush(kept, one)
    else:
        heapq.heappushpop(kept, one)


def _widened(arrivals: Sequence[int], at_ms: int) -> list[int]:
    return [min(arrivals[0], at_ms), max(arrivals[1], at_ms)] if arrivals else [at_ms, at_ms]


def _first_arrival(read: ReadAgain) -> int:
    """Where jobs begin; series begin at 0."""
    return min((item.submit_ms for item in read(LeftOut()) if isinstance(item, Job)), default=0)


def _keep_service(found: Gathered, service: Service, window: Window, until_ms: int | None) -> None:
    found.services_seen += 1
    if len(found.services) >= window.limit:
        return
    start_ms = window.from_ms or 0
    demand = {name: cut(series, start_ms, until_ms) for name, series in service.demand.items()}
    if any(series.end_ms <= 0 for series in demand.values()):
        found.left_out.add(service.name, "series that end before the window")
        return
    found.services.append(replace(service, demand=demand))


def cut(series: Series, start_ms: int, until_ms: int | None) -> Series:
    """Counted from ``start_ms``; the value that holds there is its first."""
    end_ms = series.end_ms if until_ms is None else min(series.end_ms, until_ms)
    times: list[int] = []
    values: list[int | None] = []
    for at_ms, value in zip(series.times_ms, series.values, strict=True):
        if at_ms >= end_ms:
            break
        if at_ms <= start_ms:
            times, values = [0], [value]
        else:
            times.append(at_ms - start_ms)
            values.append(value)
    return Series(times, values, end_ms - start_ms)


def _nothing(window: Window, start_ms: int, arrivals: Sequence[int]) -> str:
    length = "" if window.for_ms is None else f" for {durations.show(window.for_ms)}"
    there = (
        f"jobs arrive from {durations.show(arrivals[0])} to {durations.show(arrivals[1])}"
        if arrivals
        else "the trace holds neither jobs, series nor machines that can be used"
    )
    return f"nothing to replay from {durations.show(start_ms)}{length}: {there}"
