"""Charts as inline SVG: stacks, lines with bands and steps over time. Colours are the page's, by number."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Literal

_WIDTH, _HEIGHT = 620, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 12, 34
_MOST_HINTS: Final = 120
_TICKS: Final = 4
COLOURS: Final = 8
_UNITS_OF_TIME: Final = ((180, 1, "seconds"), (10_800, 60, "minutes"), (259_200, 3_600, "hours"))
Kind = Literal["stack", "line", "step"]


@dataclass(frozen=True, slots=True)
class Line:
    """``values`` per time; None is a gap. ``low`` and ``high`` are the band over the seeds, where there is one."""

    name: str
    values: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """``empty`` is said instead of a picture without lines. ``top`` None: from the values."""

    title: str
    unit: str
    kind: Kind
    times_s: Sequence[float]
    end_s: float
    lines: Sequence[Line]
    empty: str
    whole: bool = False
    """Only whole numbers can be."""
    top: float | None = None

    @property
    def highest(self) -> float:
        if self.kind == "stack":
            stacked = [line for line in self.lines if not line.dashed]
            sums = [sum(line.values[at] or 0 for line in stacked) for at in range(len(self.times_s))]
            alone = [value for line in self.lines if line.dashed for value in line.values if value is not None]
            return max([*sums, *alone], default=0.0)
        tops = (each for line in self.lines for each in (*line.values, *line.high) if each is not None)
        return max(tops, default=0.0)


@dataclass(frozen=True, slots=True)
class _Frame:
    end_s: float
    top: float

    def x(self, t_s: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(1.0, t_s / self.end_s)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / self.top


def nice_top(value: float, *, whole: bool = False) -> float:
    """The next round number that the ticks divide well: into whole numbers where only these can be."""
    if whole and value <= _TICKS:
        return max(1.0, math.ceil(value))
    if value <= 0:
        return 1.0
    if whole and value <= 2 * _TICKS:
        return 2.0 * _TICKS
    scale = 10.0 ** math.floor(math.log10(value))
    steps = (1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if whole else (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10)
    return next(step * scale for step in steps if step * scale >= value - 1e-9)


def draw(chart: Chart) -> str:
    """A figure with its legend; everything that is text is escaped."""
    head = f'<figcaption>{escape(chart.title)} <span class="unit">{escape(chart.unit)}</span></figcaption>'
    if not chart.lines or not chart.times_s:
        return f'<figure>{head}<p class="none">{escape(chart.empty)}</p></figure>'
    frame = _Frame(max(chart.end_s, chart.times_s[-1], 1e-9), chart.top or nice_top(chart.highest, whole=chart.whole))
    body = "".join([*_axes(frame, chart), *_marks(chart, frame), *_hints(chart, frame)])
    label = escape(f"{chart.title} ({chart.unit}) over time", quote=True)
    picture = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{body}</svg>'
    return f"<figure>{head}{picture}{_legend(chart)}</figure>"


def _legend(chart: Chart) -> str:
    items = "".join(
        f'<li><i class="{"dash" if line.dashed else "key"} k{at % COLOURS}"></i>{escape(line.name)}</li>'
        for at, line in enumerate(chart.lines)
    )
    return f"<ul>{items}</ul>"


def _axes(frame: _Frame, chart: Chart) -> Iterable[str]:
    ticks = int(frame.top) if chart.whole and frame.top < _TICKS else _TICKS
    for tick in range(ticks + 1):
        value = frame.top * tick / ticks
        y = frame.y(value)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>'
    step_s, divisor, name = _time_step(frame.end_s)
    for at in range(int(frame.end_s / step_s + 1e-9) + 1):
        x = frame.x(at * step_s)
        y = _HEIGHT - _BOTTOM
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}"/>'
        text = f"{at * step_s / divisor:g}"
        yield f'<text class="tick" x="{x:.1f}" y="{y + 16}" text-anchor="middle">{text}</text>'
    yield (
        f'<text class="tick" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" text-anchor="end">time in {name}</text>'
        f'<text class="tick" x="4" y="{_HEIGHT - 4}">{escape(chart.unit)}</text>'
    )


def _time_step(end_s: float) -> tuple[float, float, str]:
    """(seconds between ticks, seconds per unit, the unit)"""
    divisor, name = next((each[1:] for each in _UNITS_OF_TIME if end_s <= each[0]), (86_400, "days"))
    whole = end_s / divisor
    scale = 10.0 ** math.floor(math.log10(max(whole, 1e-9)))
    step = next(each * scale for each in (0.1, 0.2, 0.5, 1, 2, 5) if whole / (each * scale) <= 8)
    return step * divisor, divisor, name


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _marks(chart: Chart, frame: _Frame) -> Iterable[str]:
    under = [0.0] * len(chart.times_s)
    for at, line in enumerate(chart.lines):
        title = f"<title>{escape(line.name)}</title>"
        if chart.kind == "stack" and not line.dashed:
            over = [low + (value or 0) for low, value in zip(under, line.values, strict=True)]
            path = _area(frame, chart.times_s, under, over)
            yield f'<path class="area k{at % COLOURS}" d="{path}">{title}</path>'
            under = over
            continue
        if line.low and line.high:
            for times, low, high in _runs_of_band(chart.times_s, line.low, line.high):
                yield f'<path class="band k{at % COLOURS}" d="{_area(frame, times, low, high)}"/>'
        path = _path(frame, chart.times_s, line.values, steps=chart.kind == "step")
        dash = " dashed" if line.dashed else ""
        yield f'<path class="line k{at % COLOURS}{dash}" d="{path}">{title}</path>'


def _path(frame: _Frame, times: Sequence[float], values: Sequence[float | None], *, steps: bool) -> str:
    parts: list[str] = []
    open_ = False
    for t_s, value in zip(times, values, strict=True):
        if value is None:
            open_ = False
            continue
        x, y = f"{frame.x(t_s):.1f}", f"{frame.y(value):.1f}"
        parts.append(f"M{x} {y}" if not open_ else f"H{x}V{y}" if steps else f"L{x} {y}")
        open_ = True
    return "".join(parts)


def _runs_of_band(
    times: Sequence[float], low: Sequence[float | None], high: Sequence[float | None]
) -> Iterable[tuple[list[float], list[float], list[float]]]:
    """Pieces without gaps."""
    piece: tuple[list[float], list[float], list[float]] = ([], [], [])
    for t_s, below, above in zip(times, low, high, strict=True):
        if below is None or above is None:
            if piece[0]:
                yield piece
            piece = ([], [], [])
            continue
        for target, value in zip(piece, (t_s, below, above), strict=True):
            target.append(value)
    if piece[0]:
        yield piece


def _area(frame: _Frame, times: Sequence[float], low: Sequence[float], high: Sequence[float]) -> str:
    there = [f"{frame.x(t_s):.1f} {frame.y(value):.1f}" for t_s, value in zip(times, high, strict=True)]
    back = [f"{frame.x(t_s):.1f} {frame.y(value):.1f}" for t_s, value in zip(times, low, strict=True)]
    return f"M{'L'.join([*there, *reversed(back)])}Z"


def _hints(chart: Chart, frame: _Frame) -> Iterable[str]:
    """Invisible columns whose title is what the chart says there."""
    every = max(1, math.ceil(len(chart.times_s) / _MOST_HINTS))
    chosen = range(0, len(chart.times_s), every)
    edges = [frame.x(chart.times_s[at]) for at in chosen] + [float(_WIDTH - _RIGHT)]
    for place, at in enumerate(chosen):
        said = [f"{line.name}: {_at(line, at)}" for line in chart.lines]
        text = escape("\n".join([f"{chart.times_s[at]:g} s, {chart.unit}", *said]))
        width = max(0.5, edges[place + 1] - edges[place])
        yield (
            f'<rect class="hint" x="{edges[place]:.1f}" y="{_TOP}" width="{width:.1f}" '
            f'height="{_HEIGHT - _TOP - _BOTTOM}"><title>{text}</title></rect>'
        )


def _at(line: Line, at: int) -> str:
    value = line.values[at]
    if value is None:
        return "not known"
    low, high = (line.low[at] if line.low else None), (line.high[at] if line.high else None)
    return _short(value) if low is None or high is None else f"{_short(value)} ({_short(low)} to {_short(high)})"
