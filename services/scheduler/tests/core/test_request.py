import pytest

from cotenant_common.testing import builders
from cotenant_scheduler.core.estimate import LoadPolicy
from cotenant_scheduler.core.request import read_request

FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"
HINT = "internal.scheduling.koordinator.sh/scheduling-hint"
CUSTOM = LoadPolicy(allow_customize=True)


def used(make_world, factors: str):
    return make_world(CUSTOM).request("a", cpu="4", memory="8Gi", annotations={FACTORS: factors}).shape.estimate.used


def test_factors_of_the_pod_replace_the_defaults(make_world):
    assert used(make_world, '{"cpu": 100}')[0] == 4000


@pytest.mark.parametrize(
    "text",
    ['{"cpu": 1e999}', '{"cpu": NaN}', "[" * 100_000, '{"cpu": "x"}', "[1]", "3", '{"cpu": -5}', '{"cpu": 1e300}'],
)
def test_factors_that_are_no_percentages_leave_the_defaults(make_world, text):
    assert used(make_world, text)[0] == 3400


@pytest.mark.parametrize("text", ["[" * 100_000, "7", '{"nodeNames": "n"}', '{"nodeNames": {}}', "{"])
def test_a_hint_that_cannot_be_read_is_no_hint(world, text):
    shape = world.request("a", annotations={HINT: text}).shape
    assert (shape.only_nodes, shape.preferred_nodes) == (None, ())


def test_the_old_name_of_the_hint_is_read_too(world):
    text = '{"nodeNames": ["b", "a"], "preferredNodeNames": ["b"], "extensions": {}}'
    shape = world.request("a", annotations={"scheduling.koordinator.sh/scheduling-hint": text}).shape
    assert (shape.only_nodes, shape.preferred_nodes) == (("a", "b"), ("b",))


@pytest.mark.parametrize("memory", ["1e30", str(1 << 70)])
def test_more_than_any_node_has_waits_like_any_other_pod(world, memory):
    world.node("n")
    world.submit("huge", memory=memory)
    world.submit("small", cpu="1")
    assert world.placed(world.run()) == ["small"]
    world.node("m")
    world.later(2_000)
    assert world.where("huge") is None


def test_equal_shapes_have_equal_hashes(world):
    one, two = world.request("a", cpu="1").shape, world.request("b", cpu="1").shape
    assert one == two
    assert hash(one) == hash(two)
    assert one != world.request("c", cpu="2").shape


def test_only_the_annotations_asked_for_are_in_the_shape(world):
    pod = world.request("a", annotations={"x": "1", "y": "2"})
    assert pod.shape.extras == ()


def test_extras_tell_shapes_apart():
    manifests = [builders.pod_manifest("a", annotations={"x": value, "y": "2"}) for value in ("1", "3")]
    shapes = [
        read_request(builders.parse_pod(each, uid="u", created_ms=0), LoadPolicy(), 0, ("x",)).shape
        for each in manifests
    ]
    assert [shape.extras for shape in shapes] == [(("x", "1"),), (("x", "3"),)]
