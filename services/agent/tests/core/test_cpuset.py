import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_agent.core.cpuset import format_cpuset, parse_cpuset


@given(st.sets(st.integers(0, 300)))
def test_a_cpu_list_survives_the_way_there_and_back(cpus):
    assert parse_cpuset(format_cpuset(cpus)) == tuple(sorted(cpus))


def test_neighbours_become_a_range():
    assert format_cpuset([8, 2, 0, 1, 3]) == "0-3,8"


@pytest.mark.parametrize("text", ["a", "3-1", "1-", "-2", "0,,x"])
def test_a_bad_list_is_refused_with_what_was_expected(text):
    with pytest.raises(ValueError, match=r"cpu (list|range)"):
        parse_cpuset(text)
