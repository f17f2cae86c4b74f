"""The demo from start to end: ask, start a stack, measure, put everything back, report."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from cotenant.client import CotenantClient
from cotenant.demo import consent, knobs, measure, plan, programs, report, result, stats
from cotenant.demo.groups import ProcessGroups
from cotenant.demo.options import DemoOptions
from cotenant.demo.picture import draw
from cotenant.demo.session import Session, journalled
from cotenant.doctor import cpu_model
from cotenant.errors import CotenantError, ExitStatus
from cotenant.stack import control
from cotenant.stack.home import StackHome, StackRecord
from cotenant.stack.options import StackOptions
from cotenant_agent import capability
from cotenant_agent.cgroup.layout import detect_layout

_STACK_TIMEOUT_S: Final = 60.0
_GRACE_S: Final = 2.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_AT_MOST_S: Final = 225.0
"""No new round starts that would end later than this: four minutes less the time to put everything back."""
_QUICK_TO_SELL: Final = {"COTENANT_PROFILER_WINDOW_S": "5", "COTENANT_PROFILER_RISE_HOLD_S": "4"}
"""A node sells batch again this much sooner after an arm that Cotenant did not control; set variables win."""


async def run_demo(options: DemoOptions) -> int:
    """Run it; return the exit status. Raise CotenantError when it cannot start or breaks off."""
    options = options.checked()
    console = Console()
    found = capability.probe()
    delegated = consent.delegated_command(found, options.arguments())
    if delegated is not None:
        console.print("starting again inside a systemd scope that is delegated to this user", highlight=False)
        os.execvp(delegated[0], delegated)  # noqa: S606 - the same demo, with more rights
    with tempfile.TemporaryDirectory(prefix="cotenant-demo-") as directory:
        made = programs.make_programs(programs.find_examples(options.examples), Path(directory))
        means = consent.means(found)
        for line in means:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        consent.ask(console, made.user, yes=options.yes)
        return await _Demo(options, console, Path(directory), made, means).run()


@dataclass(slots=True)
class _Demo:
    options: DemoOptions
    console: Console
    workdir: Path
    programs: programs.Programs
    means: list[str]
    started_s: float = field(default_factory=time.monotonic)
    interrupted: bool = False
    knobs_written: int = 0
    differences: list[str] = field(default_factory=list)
    starting: "asyncio.Task[StackRecord] | None" = None
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        layout = detect_layout()
        root = f"cotenant-demo-{secrets.token_hex(3)}"
        self.session = Session(
            options=self.options,
            programs=self.programs,
            layout=layout,
            groups=ProcessGroups.open(layout, f"{root}-plain", self._plain_journal),
            stack_root=root,
            cores=len(os.sched_getaffinity(0)),
            say=self.say,
            must_end_s=self.started_s + _AT_MOST_S,
        )

    @property
    def _plain_journal(self) -> Path:
        return self.workdir / "plain-knobs.jsonl"

    @property
    def _home(self) -> StackHome:
        return StackHome(self.workdir / "stack")

    def say(self, text: str) -> None:
        passed = time.monotonic() - self.started_s
        self.console.print(f"{passed:4.0f} s  {text}", highlight=False, markup=False, soft_wrap=True)

    async def run(self) -> int:
        before = self._settings()
        try:
            await self._interruptible()
        finally:
            await self._clean_up()
            self.differences += knobs.differences(before, self._settings())
            self._finish()
            _hand_back_signals()
        if self.interrupted:
            return int(ExitStatus.INTERRUPTED)
        return int(ExitStatus.CHECK_FAILED if self.differences else ExitStatus.DONE)

    def _settings(self) -> dict[str, str]:
        layout = self.session.layout
        parents = [*layout.controllers.values(), *([layout.unified] if layout.unified is not None else [])]
        return knobs.read_settings(parents, self.session.stack_root)

    async def _interruptible(self) -> None:
        """The first Ctrl-C ends the run and keeps what was measured; later ones must not end the cleaning up."""
        work = asyncio.create_task(self._measure(), name="demo")
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._interrupt, work)
        try:
            await work
        except asyncio.CancelledError:
            if not self.interrupted:
                raise

    def _interrupt(self, work: "asyncio.Task[None]") -> None:
        self.say("still putting everything back" if self.interrupted else "interrupted")
        self.interrupted = True
        work.cancel()

    async def _measure(self) -> None:
        record = await self._start_stack()
        async with CotenantClient(record.gateway_url, self._home.token(self._home.api_token)) as client:
            await self.session.run(client, record)

    async def _start_stack(self) -> StackRecord:
        self.say("starting nats-server and the services")
        for name, value in _QUICK_TO_SELL.items():
            os.environ.setdefault(name, value)
        root = self.session.stack_root
        chosen = StackOptions(home=self._home.root, cgroup_root=root, log_level="warning").checked()
        # Kept, since a thread cannot be cancelled: cleaning up waits for it before it takes the stack down.
        self.starting = asyncio.create_task(
            asyncio.to_thread(control.start_detached, chosen, _STACK_TIMEOUT_S, lambda _: None), name="stack"
        )
        try:
            record = await asyncio.shield(self.starting)
        except CotenantError:
            # The log goes with the state at the end, so what it ends with has to be shown now.
            for line in tail(self._home.logs / "stack.log"):
                self.console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
            raise
        self.say(f"node {record.node} is up: {self.session.cores} cores, gateway {record.gateway_url}")
        return record

    async def _clean_up(self) -> None:
        self.say("putting everything back")
        groups = self.session.groups
        await groups.stop()
        self.knobs_written += journalled(self._plain_journal)
        self.differences += (await asyncio.to_thread(groups.clean_up)).differences
        if self.starting is not None:
            with contextlib.suppress(CotenantError):
                await self.starting
        self.knobs_written += journalled(self._home.agent / "knobs.jsonl")
        down = await asyncio.to_thread(
            control.take_down, self._home, keep_state=False, grace_s=_GRACE_S, say=lambda _: None
        )
        if down.found and not down.clean:
            self.differences.append(down.sentence())

    def _finish(self) -> None:
        arms = self.session.arms()
        run = result.Run(
            duration_s=time.monotonic() - self.started_s,
            machine=measure.machine(self.session.cores, cpu_model()),
            knobs_written=self.knobs_written,
            knob_differences=self.differences,
            means=[*self.means, f"the load generator runs with {self.session.load_means or 'nothing yet'}"],
            calibration=self._calibration(),
            pending=self.session.explained,
            interrupted=self.interrupted,
            quick=self.options.quick,
        )
        files = self._write(result.document(arms, run)) if arms else []
        report.show(self.console, arms, run, files)

    def _calibration(self) -> dict[str, Any]:
        return {
            "service_ms": round(self.session.service_ms, 4),
            "units_per_core_s": {kind: round(rate, 2) for kind, rate in sorted(self.session.rates.items())},
            "segment_s": self.options.segment_s,
            "rounds": self.options.rounds,
            "load_steps": plan.load_steps(self.options.segment_s),
            "seed": self.options.seed,
        }

    def _write(self, document: dict[str, Any]) -> list[Path]:
        directory = self.options.output_dir
        directory.mkdir(parents=True, exist_ok=True)
        document["segments"] = [self._segment_json(segment) for segment in self.session.segments]
        files = [directory / "demo-result.json"]
        files[0].write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        picture = directory / "demo-result.svg"
        try:
            draw(
                self.session.segments,
                self.session.cores,
                measure.machine_line(self.session.cores, cpu_model()),
                picture,
            )
        except (ImportError, OSError) as error:
            self.console.print(f"no picture: {error}", highlight=False, markup=False, soft_wrap=True)
        else:
            files.append(picture)
        return files

    def _segment_json(self, segment: stats.SegmentResult) -> dict[str, Any]:
        """One round of one arm, with the figures that the arm's were pooled from."""
        figures = stats.summarise(segment.arm, [segment], self.session.rates)
        own = {"arm": str(segment.arm), "round": segment.round, "restarts": segment.restarts}
        work = {kind: {"units": done.units, "cpu_s": round(done.cpu_s, 3)} for kind, done in segment.work.items()}
        seen = {"work": work, "timeline": [asdict(each) for each in segment.observations]}
        return own | result.arm_json(figures) | seen


def _hand_back_signals() -> None:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.remove_signal_handler(number)


def tail(log: Path, lines: int = 12) -> list[str]:
    try:
        return log.read_text(errors="replace").splitlines()[-lines:]
    except OSError:
        return []
