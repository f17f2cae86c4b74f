"""The programs under `examples/`: what the demo's figures rest on."""

import json
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.demo import measure, plan


def test_arrivals_follow_the_seed_and_nothing_else(poisson):
    steps = poisson.parse_steps("10:1,40:1")

    assert poisson.arrivals(steps, 2, 2.0, 7) == poisson.arrivals(steps, 2, 2.0, 7)
    assert poisson.arrivals(steps, 2, 2.0, 7) != poisson.arrivals(steps, 2, 2.0, 8)


def test_the_rate_is_share_times_cores_over_service_time(poisson):
    steps = poisson.parse_steps("10:50,40:50,20:50")
    offsets, of_step = poisson.arrivals(steps, 2, 2.0, 1)

    counts = [of_step.count(index) for index in range(3)]
    for count, rate in zip(counts, (100, 400, 200), strict=True):
        assert count / 50 == pytest.approx(rate, rel=0.06)
    assert offsets == sorted(offsets)
    assert offsets[-1] < 150


@pytest.mark.parametrize("text", ["", "40", "0:5", "10:-1", "a:b", "10:1,,20:1"])
def test_wrong_steps_are_refused(poisson, text):
    with pytest.raises(ValueError, match="a step"):
        poisson.parse_steps(text)


@given(st.lists(st.floats(0, 1e5), max_size=50), st.sampled_from([50, 99, 99.9]))
def test_generator_and_demo_agree_on_percentiles(poisson, values, percent):
    from cotenant.demo.stats import nearest_rank

    assert poisson.nearest_rank(sorted(values), percent) == nearest_rank(values, percent)


def test_every_kind_of_work_has_a_result_that_depends_on_the_unit(neighbour):
    assert set(neighbour.KINDS) == set(plan.KINDS)
    for make in neighbour.KINDS.values():
        unit = make()
        assert unit(1) == unit(1)
        assert unit(1) != unit(2)


def run_neighbour(examples, *arguments):
    command = [sys.executable, str(examples / "neighbours" / "neighbour.py"), *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)


def test_a_counter_goes_on_where_a_restarted_neighbour_left_off(examples, tmp_path):
    file = tmp_path / "counter"
    for _ in range(2):
        run_neighbour(examples, "--kind", "solve", "--units", "3", "--counter", str(file))

    found = measure.read_counter(file)
    assert found.work.units == 6
    assert found.work.cpu_s > 0
    assert found.pid > 0


def test_counter_layouts_of_writer_and_reader_are_the_same(neighbour):
    assert neighbour.COUNTER.format == struct.Struct("<QQQ").format


def test_the_greedy_one_grows_up_to_its_balloon_and_does_the_work_of_its_kind(neighbour, tmp_path):
    greedy = neighbour.Greedy(3 * neighbour.BALLOON_STEP_BYTES // 2, tmp_path)

    with greedy.file:
        results = [greedy(number) for number in range(3)]

    assert len(greedy.held) == 1
    assert results == [neighbour.compress_unit()(number) for number in range(3)]
    assert list(tmp_path.iterdir()) == []  # its file has no name, so a kill leaves nothing


def test_documents_render_the_same_for_the_same_salt(service):
    assert service.render(50, 3) == service.render(50, 3)
    assert service.render(50, 3).digest != service.render(50, 4).digest
