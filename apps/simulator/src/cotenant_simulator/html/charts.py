"""From the series of one arm's runs to its charts. Over seeds: means in stacks, elsewhere medians in bands of all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Final

from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.core.series import Point, Series
from cotenant_simulator.core.summary import BANDS, CLASSES
from cotenant_simulator.html.svg import Chart, Line, nice_top
from cotenant_simulator.trials import Result

Read = Callable[[Series, int], float | None]
_MOST_LINES: Final = 8
_PERCENT: Final = 100.0
_MILLI: Final = 1_000


def charts(results: Sequence[Result]) -> list[Chart]:
    """In the same order for every arm; empty when no series was kept."""
    found = [one.series for one in results if one.series is not None and one.series.points]
    if not found:
        return []
    length = min(len(series.points) for series in found)
    times_s = [point.t_ms / 1_000 for point in found[0].points[:length]]
    end_s = results[0].virtual_ms / 1_000
    lines = _Lines(found, length)
    return [
        Chart("CPU in use, by class", "% of capacity", "stack", times_s, end_s, lines.used(CPU), "no node"),
        Chart("Memory in use, by class", "% of capacity", "stack", times_s, end_s, lines.used(MEMORY), "no node"),
        Chart(
            "Waiting for a node, by class", "pods", "step", times_s, end_s, lines.waiting(), "nobody waited", whole=True
        ),
        Chart(
            "Evictions so far, by reason",
            "pods",
            "step",
            times_s,
            end_s,
            lines.evictions(),
            "nobody was evicted",
            whole=True,
        ),
        Chart("Quota loans, by borrower", "cores above min", "step", times_s, end_s, lines.loans(), "nothing was lent"),
        Chart(
            "Services under pressure",
            "pods",
            "step",
            times_s,
            end_s,
            lines.pressed(),
            "no service was pressed",
            whole=True,
        ),
        Chart("Nodes in use", "nodes", "step", times_s, end_s, lines.nodes(), "no node", whole=True),
    ]


def on_one_scale(arms: Sequence[Sequence[Chart]]) -> list[list[Chart]]:
    """Charts of one kind side by side are read against one axis."""
    if not arms or not all(arms):
        return [list(arm) for arm in arms]
    tops = [nice_top(max(chart.highest for chart in row), whole=row[0].whole) for row in zip(*arms, strict=True)]
    return [[replace(chart, top=top) for chart, top in zip(arm, tops, strict=True)] for arm in arms]


class _Lines:
    def __init__(self, found: Sequence[Series], length: int) -> None:
        self._found = found
        self._length = length

    def _line(self, name: str, read: Read, *, dashed: bool = False, mean: bool = False) -> Line:
        values: list[float | None] = []
        low: list[float | None] = []
        high: list[float | None] = []
        for at in range(self._length):
            known = [value for series in self._found if (value := read(series, at)) is not None]
            values.append((fmean(known) if mean else median(known)) if known else None)
            low.append(min(known, default=None))
            high.append(max(known, default=None))
        banded = not mean and len(self._found) > 1
        return Line(name, values, low if banded else (), high if banded else (), dashed)

    def _some(self, lines: Sequence[Line]) -> list[Line]:
        """Those that ever were above zero, the largest when they are too many."""
        seen = [line for line in lines if any((*line.values, *line.high))]
        if len(seen) <= _MOST_LINES:
            return seen
        largest = sorted(seen, key=lambda line: -max(value or 0 for value in line.values))[:_MOST_LINES]
        return [line for line in seen if any(line is one for one in largest)]

    def used(self, resource: str) -> list[Line]:
        def share(amount: Callable[[Point], float | None]) -> Read:
            def read(series: Series, at: int) -> float | None:
                point = series.points[at]
                found, whole = amount(point), point.capacity[resource]
                return None if found is None or not whole else _PERCENT * found / whole

            return read

        stacked = [
            self._line(name, share(lambda point, name=name: point.used[resource][name]), mean=True)  # type: ignore[misc]
            for name in CLASSES
        ]
        requested = share(lambda point: sum(point.requested[resource].values()))
        asked = self._line("requested, sold twice included", requested, dashed=True, mean=True)
        known = [line for line in stacked if any(value is not None for value in line.values)]
        return [*known, asked] if known else []

    def waiting(self) -> list[Line]:
        return self._some([self._line(name, _of(lambda series: series.waiting, name)) for name in BANDS])

    def evictions(self) -> list[Line]:
        names = sorted({name for series in self._found for name in (series.evictions or [{}])[-1]})
        return self._some([self._line(name, _of(lambda series: series.evictions, name)) for name in names])

    def loans(self) -> list[Line]:
        names = sorted({name for series in self._found for point in series.points for name in point.borrowed_cpu_milli})

        def borrowed(name: str) -> Read:
            return lambda series, at: series.points[at].borrowed_cpu_milli.get(name, 0) / _MILLI

        return self._some([self._line(name, borrowed(name)) for name in names])

    def pressed(self) -> list[Line]:
        return self._some([self._line("service pods", lambda series, at: series.points[at].pressed_pods)])

    def nodes(self) -> list[Line]:
        there = self._line("there", lambda series, at: series.points[at].nodes)
        return self._some([self._line("with a pod", lambda series, at: series.points[at].nodes_used), there])


def _of(rows: Callable[[Series], Sequence[Mapping[str, int]]], name: str) -> Read:
    return lambda series, at: rows(series)[at].get(name, 0)
