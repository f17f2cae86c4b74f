from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.model import resources

NAMES = st.sampled_from(
    [
        "cpu",
        "memory",
        "pods",
        "ephemeral-storage",
        "hugepages-2Mi",
        "nvidia.com/gpu",
        *resources.NATIVE_OF,
    ]
)
LISTS = st.dictionaries(NAMES, st.integers(min_value=0, max_value=2**53))


def test_native_cpu_is_milli_cores_and_batch_cpu_already_is() -> None:
    assert resources.parse("cpu", "2") == 2000
    assert resources.parse(resources.BATCH_CPU, "2000") == 2000
    assert resources.parse("memory", "1Gi") == 1 << 30
    assert resources.parse("nvidia.com/gpu", "2") == 2


@given(NAMES, st.integers(min_value=0, max_value=2**53))
def test_rendered_values_parse_back(name: str, value: int) -> None:
    assert resources.parse(name, resources.render(name, value)) == value


@given(LISTS, LISTS)
def test_subtracting_what_was_added_gives_the_rest_back(left: dict[str, int], right: dict[str, int]) -> None:
    rest = resources.subtract(resources.add(left, right), right)
    assert {name: value for name, value in rest.items() if value} == {n: v for n, v in left.items() if v}


@given(LISTS, LISTS)
def test_shortfall_is_empty_exactly_when_everything_fits(request: dict[str, int], free: dict[str, int]) -> None:
    missing = resources.shortfall(request, free)
    assert bool(missing) == any(value > free.get(name, 0) for name, value in request.items())
    topped_up = resources.add(free, missing)
    assert not resources.shortfall(request, topped_up)


@given(LISTS, LISTS)
def test_maximum_is_no_less_than_either(left: dict[str, int], right: dict[str, int]) -> None:
    larger = resources.maximum(left, right)
    assert not resources.shortfall(left, larger)
    assert not resources.shortfall(right, larger)


def test_an_unset_name_stays_unset() -> None:
    assert resources.add({"cpu": 1}, {}) == {"cpu": 1}
    assert resources.shortfall({"gpu": 0}, {}) == {}


def test_descriptions_are_sorted_and_say_nothing_when_empty() -> None:
    assert resources.describe({"memory": 1 << 30, "cpu": 1500}) == "cpu 1500m, memory 1Gi"
    assert resources.describe({}) == "nothing"
