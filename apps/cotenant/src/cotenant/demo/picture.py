"""One picture of a run: service latency, machine use, batch admitted and capped, over time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cotenant.demo.plan import ARM_TITLES, Arm
from cotenant.demo.stats import Sample, SegmentResult, nearest_rank

_COLORS: Final = {Arm.ALONE: "#7a8b99", Arm.UNCONTROLLED: "#c8553d", Arm.WEIGHTS: "#d9a441", Arm.COTENANT: "#2a7f62"}
_BIN_S: Final = 0.5
_FEW: Final = 10
"""Below this many requests in a bin the second percentile line would only be the maximum again."""


def binned(samples: Sequence[Sample], percent: float, at_least: int = 1) -> list[tuple[float, float]]:
    """(middle of the bin in seconds, percentile of its latencies in ms) of each bin with enough requests."""
    bins: dict[int, list[float]] = {}
    for sample in samples:
        bins.setdefault(int(sample.at_s / _BIN_S), []).append(sample.latency_ms)
    return [
        ((number + 0.5) * _BIN_S, value)
        for number, found in sorted(bins.items())
        if len(found) >= at_least and (value := nearest_rank(found, percent)) is not None
    ]


def draw(segments: Sequence[SegmentResult], cores: int, title: str, path: Path) -> None:
    # Slow to import, and a broken font cache must not keep the demo from starting.
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(12, 8), layout="constrained")
    latency, machine, batch = figure.subplots(3, 1, sharex=True, gridspec_kw={"height_ratios": [3, 2, 2]})
    for axes in (latency, machine, batch):
        _shade(axes, segments)
        axes.grid(visible=True, axis="y", alpha=0.3)
    _draw_latency(latency, segments)
    _draw_machine(machine, segments, cores)
    _draw_batch(batch, segments)
    batch.set_xlabel("seconds since the first arm")
    latency.set_title(title, loc="left", fontsize=10)
    figure.savefig(path)


def _shade(axes: Any, segments: Sequence[SegmentResult]) -> None:
    for segment in segments:
        end = segment.started_s + segment.seconds
        axes.axvspan(segment.started_s, end, color=_COLORS[segment.arm], alpha=0.13, lw=0)


def _draw_latency(axes: Any, segments: Sequence[SegmentResult]) -> None:
    named: set[Arm] = set()
    for segment in segments:
        label = None if segment.arm in named else ARM_TITLES[segment.arm]
        named.add(segment.arm)
        for percent, width, at_least in ((50.0, 0.9, 1), (99.0, 1.8, _FEW)):
            points = binned(segment.samples, percent, at_least)
            axes.plot(
                [segment.started_s + at for at, _ in points],
                [value for _, value in points],
                color=_COLORS[segment.arm],
                lw=width,
                label=label if percent > 50 else None,
            )
    axes.set_yscale("log")
    axes.set_ylabel("service latency, ms\n(thin p50, thick p99 per 0.5 s)")
    axes.legend(loc="upper right", fontsize=8, ncols=4)


def _draw_machine(axes: Any, segments: Sequence[SegmentResult], cores: int) -> None:
    for index, segment in enumerate(segments):
        at = [segment.started_s + seen.at_s for seen in segment.observations]
        service = [100 * seen.service_cores / cores for seen in segment.observations]
        both = [100 * (seen.service_cores + seen.batch_cores) / cores for seen in segment.observations]
        busy = [100 * seen.busy_ratio for seen in segment.observations]
        axes.fill_between(at, 0, service, color="#33658a", alpha=0.8, lw=0, label=None if index else "service")
        axes.fill_between(at, service, both, color="#86a873", alpha=0.8, lw=0, label=None if index else "batch")
        axes.plot(at, busy, color="#222222", lw=1.0, label=None if index else "machine busy")
    axes.set_ylim(0, 105)
    axes.set_ylabel("machine use, %")
    axes.legend(loc="lower right", fontsize=8, ncols=3)


def _draw_batch(axes: Any, segments: Sequence[SegmentResult]) -> None:
    caps = axes.twinx()
    for index, segment in enumerate(segments):
        at = [segment.started_s + seen.at_s for seen in segment.observations]
        running = [seen.admitted for seen in segment.observations]
        pending = [seen.pending for seen in segment.observations]
        named = index == 0
        axes.step(at, running, where="post", color="#86a873", lw=1.6, label="running" if named else None)
        axes.step(at, pending, where="post", color="#b56576", lw=1.2, ls="--", label="pending" if named else None)
    first = True
    for segment in segments:
        capped = [seen for seen in segment.observations if seen.cap_milli is not None]
        at = [segment.started_s + seen.at_s for seen in capped]
        cap = [(seen.cap_milli or 0) / 1000 for seen in capped]
        if capped:
            caps.step(at, cap, where="post", color="#444444", lw=1.0, ls=":", label="batch cap" if first else None)
            first = False
    axes.set_ylabel("batch pods")
    axes.set_ylim(bottom=0)
    caps.set_ylabel("batch cap, cores")
    caps.set_ylim(bottom=0)
    axes.legend(loc="upper left", fontsize=8, ncols=2)
    if not first:
        caps.legend(loc="upper right", fontsize=8)
