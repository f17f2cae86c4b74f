import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_agent.cgroup.files import (
    KNOB_FILES,
    UNLIMITED,
    Knob,
    Version,
    default_shares,
    shares_to_weight,
    weight_to_shares,
)


@pytest.mark.parametrize(("shares", "weight"), [(2, 1), (1_024, 39), (262_144, 10_000), (0, 1), (999_999, 10_000)])
def test_shares_map_onto_weights_as_container_runtimes_have_it(shares, weight):
    assert shares_to_weight(shares) == weight


@given(st.integers(1, 10_000))
def test_a_weight_survives_as_shares(weight):
    assert shares_to_weight(weight_to_shares(weight)) == weight


def test_quota_reads_and_writes_both_versions():
    quota = KNOB_FILES[Knob.CPU_QUOTA]
    assert quota.encode(Version.V1, UNLIMITED) == "-1"
    assert quota.encode(Version.V2, UNLIMITED) == "max 100000"
    assert quota.encode(Version.V2, 50_000) == "50000 100000"
    assert quota.decode(Version.V2, "max 100000\n") == UNLIMITED
    assert quota.decode(Version.V2, "25000 50000\n") == 50_000


@pytest.mark.parametrize("text", ["max", "", "1 2 3"])
def test_a_quota_of_other_than_two_fields_is_an_error(text):
    with pytest.raises(ValueError, match=r"cpu\.max"):
        KNOB_FILES[Knob.CPU_QUOTA].decode(Version.V2, text)


def test_memory_limits_are_whole_pages_and_know_no_limit():
    limit = KNOB_FILES[Knob.MEMORY_MAX]
    assert limit.encode(Version.V1, 10_000) == "8192"
    assert limit.encode(Version.V2, UNLIMITED) == "max"
    assert limit.decode(Version.V1, "9223372036854771712\n") == UNLIMITED


def test_cpu_lists_are_normalized():
    assert KNOB_FILES[Knob.CPUSET_CPUS].decode(Version.V1, "0,1,2\n") == "0-2"


def test_knobs_that_a_version_lacks_have_no_name_there():
    assert KNOB_FILES[Knob.MEMORY_HIGH].name(Version.V1) is None
    assert KNOB_FILES[Knob.CPU_SHARES].name(Version.V2) == "cpu.weight"


def test_an_empty_cpuset_is_a_line_break_because_an_empty_write_changes_nothing():
    assert KNOB_FILES[Knob.CPUSET_CPUS].encode(Version.V2, "") == "\n"


def test_a_group_without_a_weight_has_the_kernels_own_in_each_version():
    assert shares_to_weight(default_shares(Version.V2)) == 100
    assert default_shares(Version.V1) == 1_024
