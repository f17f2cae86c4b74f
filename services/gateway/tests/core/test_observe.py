from hypothesis import given
from hypothesis import strategies as st

from cotenant_gateway.core.observe import Observing, parse
from cotenant_gateway.testing import running

NAMES = st.lists(st.sampled_from(["a", "b", "c"]), unique=True).map(lambda names: tuple(sorted(names)))
SCOPES = st.builds(Observing, st.booleans(), NAMES, NAMES)


@given(SCOPES)
def test_what_is_kept_is_what_is_read(scope: Observing):
    assert parse(scope.to_data()) == scope


@given(SCOPES, SCOPES)
def test_taking_away_what_was_added_leaves_none_of_it(one: Observing, other: Observing):
    left = one.more(other).less(other)
    assert not (left.everything and other.everything)
    assert not {*left.nodes} & {*other.nodes}
    assert not {*left.namespaces} & {*other.namespaces}


def test_a_name_that_can_be_none_observes_nothing():
    assert not parse({"nodes": "A B,*", "namespaces": "", "everything": "yes"})


def test_a_pod_is_looked_at_for_its_node_or_its_namespace():
    pod = running(node="n1")
    assert Observing(nodes=("n1",)).scope_of(pod) == "node n1"
    assert Observing(namespaces=("default",)).scope_of(pod) == "namespace default"
    assert Observing(everything=True).scope_of(pod) == "everything"
    assert Observing(nodes=("n2",), namespaces=("other",)).scope_of(pod) is None
