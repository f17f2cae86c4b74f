"""What the user reads at the end."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cotenant.cli.views import explain_lines
from cotenant.demo.plan import Arm
from cotenant.demo.result import Run, verdict
from cotenant.demo.stats import ArmResult

_MIB = 1024 * 1024
_NAMES = {Arm.ALONE: "alone", Arm.UNCONTROLLED: "uncontrolled", Arm.WEIGHTS: "weights only", Arm.COTENANT: "Cotenant"}
_LEGEND = (
    "  latency from the intended send time, timeouts counted in full; late: p99 of the load generator's own lateness",
    "  work: what neighbours got done, of what the CPU left by service, load generator and system could do",
    "  memory: the most that neighbours held beyond what they were granted, at the service's expense",
)


def table(arms: Mapping[Arm, ArmResult]) -> Table:
    # 78 columns: also what a pipe and a narrow terminal show whole.
    found = Table(title="co-location on this machine", title_justify="left", box=None, padding=(0, 2, 0, 0))
    found.add_column("arm", no_wrap=True)
    for heading in ("busy", "p50 ms", "p99 ms", "p99.9", "count", "err", "work", "memory", "late"):
        found.add_column(heading, justify="right", no_wrap=True)
    for arm in Arm:
        if arm in arms:
            found.add_row(_NAMES[arm], *_cells(arms[arm]))
    return found


def _cells(arm: ArmResult) -> list[str]:
    no_batch = arm.arm is Arm.ALONE
    return [
        f"{arm.busy:.0%}",
        _figure(arm.p50_ms),
        _figure(arm.p99_ms),
        _figure(arm.p999_ms),
        f"{arm.samples}",
        f"{arm.errors}",
        "–" if no_batch or arm.work_share is None else f"{arm.work_share:.0%}",
        "–" if no_batch else f"{arm.memory_over_grant_bytes // _MIB} MiB",
        _figure(arm.lateness_p99_ms),
    ]


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _faults(arms: Mapping[Arm, ArmResult]) -> list[str]:
    """Only worth a line where it happened."""
    found = {arm: result.service_major_faults for arm, result in arms.items() if result.service_major_faults}
    if not found:
        return []
    return [
        "  pages the service had to read back from disk: " + ", ".join(f"{_NAMES[a]} {n}" for a, n in found.items())
    ]


def pending_lines(pending: Mapping[str, Any] | None) -> list[str]:
    """Why one neighbour had to wait, as `cotenant explain` prints it."""
    if pending is None:
        return []
    name = str(pending["name"])
    return [
        f"one that had to wait, by `cotenant explain {name}`:",
        *(f"  {line}" for line in explain_lines(name, pending)),
    ]


def restored_line(run: Run) -> str:
    differences = len(run.knob_differences)
    return f"{run.knobs_written} knobs written; restored: {differences} difference{'' if differences == 1 else 's'}"


def show(console: Console, arms: Mapping[Arm, ArmResult], run: Run, files: list[Path]) -> None:
    if arms:
        console.print(table(arms))
        for line in (*_LEGEND, *_faults(arms)):
            console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)
    for line in pending_lines(run.pending):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    for line in verdict(arms, quick=run.quick):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(restored_line(run), style="bold", highlight=False)
    for difference in run.knob_differences:
        console.print(f"  {difference}", style="red", highlight=False, markup=False, soft_wrap=True)
    if files:
        console.print(
            f"took {run.duration_s:.0f} s; written: {', '.join(str(path) for path in files)}", highlight=False
        )
