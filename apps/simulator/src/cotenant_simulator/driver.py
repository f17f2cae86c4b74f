"""Carries a scenario out. At each instant: faults, the timeline, everything until quiet, what is expected."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cotenant_common.bus.protocol import BusError
from cotenant_common.contracts import subjects
from cotenant_common.contracts.messages.telemetry import AppLatency
from cotenant_common.runtime import requests
from cotenant_gateway.core.errors import ApiError
from cotenant_gateway.core.yaml_source import Document
from cotenant_simulator import loop
from cotenant_simulator.accounts import Accounts
from cotenant_simulator.cluster import Cluster, RefusedError
from cotenant_simulator.core.checks import SUMMARY, Verdict, judge
from cotenant_simulator.core.scenario import Apply, Entry, Fault, Remove, Scenario, SetUsage, Signal, Silence
from cotenant_simulator.errors import ScenarioError
from cotenant_simulator.node.host import NodeShape, NodeShapeError, read_shape
from cotenant_simulator.recorder import Json, Recorder

_LATENCY_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Moment:
    """What falls on one instant. What ends comes before what begins, so that two faults in a row do not overlap."""

    ends: list[Entry] = field(default_factory=list)
    begins: list[Entry] = field(default_factory=list)
    expected: list[int] = field(default_factory=list)


def moments(scenario: Scenario) -> dict[int, Moment]:
    """By time, in order."""
    found: dict[int, Moment] = {0: Moment(), scenario.duration_ms: Moment()}
    for entry in scenario.timeline:
        found.setdefault(entry.at_ms, Moment()).begins.append(entry)
        if entry.until_ms is not None and entry.until_ms <= scenario.duration_ms:
            found.setdefault(entry.until_ms, Moment()).ends.append(entry)
    for at, expectation in enumerate(scenario.expect):
        found.setdefault(expectation.at_ms, Moment()).expected.append(at)
    return dict(sorted(found.items()))


class Driver:
    def __init__(self, scenario: Scenario, cluster: Cluster, sample_ms: int | None = None) -> None:
        """``sample_ms`` None: the accounts keep no series."""
        self._scenario = scenario
        self._cluster = cluster
        cluster.demands.follow(scenario.courses)
        self.recorder = Recorder(cluster)
        self.accounts = Accounts(cluster, self.recorder, scenario.duration_ms, sample_ms)
        self._looks: tuple[int, Callable[[], None]] | None = None
        self._at_end: Callable[[Json], None] = lambda _: None
        self._verdicts: dict[int, Verdict] = {}
        self._orders: asyncio.Queue[Apply | Remove] = asyncio.Queue()
        self._lines: dict[int, int] = {}
        self._latencies: dict[int, asyncio.Task[None]] = {}
        self._failure: Exception | None = None

    def look_every(self, interval_ms: int, look: Callable[[], None], at_end: Callable[[Json], None]) -> None:
        """Call ``look`` whenever an instant of the timeline is over, and at least that often; ``at_end`` once."""
        self._looks = (interval_ms, look)
        self._at_end = at_end

    def _moments(self) -> dict[int, Moment]:
        found = moments(self._scenario)
        for at_ms in self._cluster.demands.changes(self._scenario.duration_ms):
            found.setdefault(at_ms, Moment())
        if self._looks is not None:
            for at_ms in range(0, self._scenario.duration_ms, self._looks[0]):
                found.setdefault(at_ms, Moment())
        return dict(sorted(found.items()))

    async def run(self) -> Json:
        """The outcome. Raise ScenarioError when the gateway refuses what the scenario asks."""
        now = loop.current()
        self.accounts.start()
        self._cluster.start()
        await now.quiet()
        user = asyncio.create_task(self._obey(), name="user")
        if self._scenario.objects:
            self._orders.put_nowait(Apply(self._scenario.objects))
        for at_ms, moment in self._moments().items():
            await now.sleep_until_ms(at_ms)
            self._cluster.demands.tick(at_ms)
            self._happen(moment)
            await now.quiet()
            if self._failure is not None:
                raise self._failure
            self._expect(moment.expected)
            if self._looks is not None:
                self._looks[1]()
        user.cancel()
        outcome = self.recorder.outcome()
        self._at_end(outcome)
        await self._cluster.stop()
        outcome["summary"] = self.accounts.summary(outcome)
        self.accounts.finish(outcome)
        outcome["expectations"] = [self._verdicts[at].json() for at in range(len(self._scenario.expect))]
        return outcome

    @property
    def verdicts(self) -> list[Verdict]:
        return [self._verdicts[at] for at in sorted(self._verdicts)]

    def _expect(self, expected: Sequence[int]) -> None:
        if not expected:
            return
        outcome = self.recorder.outcome()
        if any(self._scenario.expect[at].subject == SUMMARY for at in expected):
            outcome["summary"] = self.accounts.summary(outcome)
        for at in expected:
            self._verdicts[at] = judge(self._scenario.expect[at], outcome)

    def _happen(self, moment: Moment) -> None:
        for entry in sorted(moment.ends, key=_faults_first):
            self._end(entry)
        for entry in sorted(moment.begins, key=_faults_first):
            self._begin(entry)
        self._cluster.settle()

    def _begin(self, entry: Entry) -> None:
        verb = entry.verb
        if isinstance(verb, Apply | Remove):
            self._lines[id(verb)] = entry.line
            self._orders.put_nowait(verb)
        elif isinstance(verb, Fault):
            self._cluster.begin(verb)
        elif isinstance(verb, Silence):
            self._cluster.silence(verb.node, begin=True)
        else:
            self._cluster.demands.begin(verb)
            if isinstance(verb, Signal) and verb.latency_ms is not None:
                self._latencies[id(verb)] = asyncio.create_task(self._report_latency(verb), name="application")

    def _end(self, entry: Entry) -> None:
        verb = entry.verb
        if isinstance(verb, Fault):
            self._cluster.end(verb)
        elif isinstance(verb, Silence):
            self._cluster.silence(verb.node, begin=False)
        elif isinstance(verb, SetUsage | Signal):
            self._cluster.demands.end(verb)
            if (task := self._latencies.pop(id(verb), None)) is not None:
                task.cancel()

    async def _report_latency(self, signal: Signal) -> None:
        """What an application says of itself, once a second."""
        namespace, _, name = signal.pod.partition("/")
        bus = self._cluster.server.connect("application")
        while True:
            message = AppLatency(
                namespace=namespace,
                pod=name,
                at_ms=self._cluster.clock.now_ms(),
                window_ms=1_000,
                count=100,
                p50_ms=signal.latency_ms,
                p99_ms=signal.latency_ms,
            )
            try:
                await requests.publish(bus, subjects.APP_LATENCY, message, namespace=namespace, pod=name)
            except BusError:
                return
            await asyncio.sleep(_LATENCY_EVERY_S)

    # Orders to the gateway, one after the other, as a user types them

    async def _obey(self) -> None:
        while True:
            order = await self._orders.get()
            try:
                if isinstance(order, Apply):
                    await self._apply(order.documents)
                else:
                    await self._cluster.remove(order.objects)
            except (RefusedError, ApiError, ScenarioError) as error:
                self._failure = self._explained(order, error)
                return
            except Exception as error:  # noqa: BLE001 - the driver raises it where the scenario ends
                self._failure = error
                return

    async def _apply(self, documents: Sequence[Document]) -> None:
        await self._cluster.apply(documents, [shape for one in documents if (shape := self._shape(one)) is not None])

    def _shape(self, document: Document) -> NodeShape | None:
        if document.data.get("kind") != "Node":
            return None
        try:
            return read_shape(document.data)
        except NodeShapeError as error:
            path = tuple(error.field.split("."))
            line = document.line_of(path)
            raise ScenarioError(self._scenario.source, line, error.field, error.message) from error

    def _explained(self, order: Apply | Remove, error: Exception) -> Exception:
        if isinstance(error, RefusedError):
            fault = error.fault
            return ScenarioError(self._scenario.source, fault.line, fault.field, fault.message)
        if isinstance(error, ApiError):
            return ScenarioError(self._scenario.source, self._lines.get(id(order)), error.field or "", error.message)
        return error


def _faults_first(entry: Entry) -> int:
    return 0 if isinstance(entry.verb, Fault) else 1
