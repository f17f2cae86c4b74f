"""What is kept of a trace: a window, the first so many, counted from its start."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_simulator.replay.gather import ReadAgain, Window, cut, gather
from cotenant_simulator.replay.model import Item, Job, LeftOut, Machine, Series, Service, TraceError

ALL = Window(None, None, 100, 50)


def job(submit_ms: int, members: int = 1) -> Job:
    return Job(f"job-{submit_ms}", submit_ms, 1_000, {"cpu": 1_000}, members)


def reading(items: Sequence[Item]) -> ReadAgain:
    def read(_: LeftOut) -> Iterator[Item]:
        return iter(items)

    return read


def test_the_first_jobs_are_the_earliest_whatever_the_order_of_the_file():
    found = gather(reading([job(9_000), job(5_000), job(7_000)]), Window(None, None, 2, 50), LeftOut())
    assert [(one.name, one.submit_ms) for one in found.jobs] == [("job-5000", 0), ("job-7000", 2_000)]
    assert found.jobs_seen == 3


def test_a_window_counts_what_falls_into_it():
    found = gather(reading([job(at) for at in range(0, 10_000, 1_000)]), Window(3_000, 4_000, 2, 50), LeftOut())
    assert [one.submit_ms for one in found.jobs] == [0, 1_000]
    assert found.jobs_seen == 4


def test_an_empty_window_says_where_the_jobs_are():
    with pytest.raises(TraceError, match="from 1m for 10s: jobs arrive from 5s to 7s"):
        gather(reading([job(5_000), job(7_000)]), Window(60_000, 10_000, 5, 50), LeftOut())


def test_machines_alone_are_a_trace():
    assert gather(reading([Machine("a", {"cpu": 1})]), ALL, LeftOut()).machines


def test_members_over_the_most_are_counted():
    left_out = LeftOut()
    found = gather(reading([job(0, members=70)]), ALL, left_out)
    assert found.jobs[0].members == 50
    assert left_out.counts == {"members of jobs with more than 50": 20}


def test_a_series_that_ends_before_the_window_is_left_out():
    early, late = (Service(name, {}, {"cpu": Series((0,), (1,), end)}) for name, end in (("a", 10), ("b", 100)))
    left_out = LeftOut()
    found = gather(reading([early, late]), Window(50, None, 10, 50), left_out)
    assert [one.name for one in found.services] == ["b"]
    assert left_out.counts == {"series that end before the window": 1}


@given(
    steps=st.lists(st.integers(1, 50), min_size=1, max_size=20),
    start_ms=st.integers(0, 300),
    length_ms=st.integers(1, 300),
)
def test_a_cut_series_says_at_every_instant_what_the_whole_one_said(steps: list[int], start_ms: int, length_ms: int):
    times = [sum(steps[:at]) for at in range(len(steps))]
    whole = Series(times, list(range(len(steps))), sum(steps))
    part = cut(whole, start_ms, start_ms + length_ms)
    assert part.end_ms == min(whole.end_ms - start_ms, length_ms)
    for at_ms in range(max(0, part.end_ms)):
        assert _at(part, at_ms) == _at(whole, start_ms + at_ms)


def _at(series: Series, at_ms: int) -> int | None:
    begun = [value for time, value in zip(series.times_ms, series.values, strict=True) if time <= at_ms]
    return begun[-1] if begun else None
