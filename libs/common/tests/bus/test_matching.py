import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.bus.matching import InvalidKeyError, check_key, compile_pattern, republish_mapping
from cotenant_common.contracts.buckets import BINDINGS

TOKENS = st.lists(st.sampled_from(["a", "b", "pod-1", "n_1"]), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("pattern", "subject", "matches"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "anything.at.all", True),
        ("a.*.c", "a.b.c", True),
        ("a+b", "aab", False),
    ],
)
def test_wildcards(pattern: str, subject: str, matches: bool) -> None:
    assert compile_pattern(pattern)(subject) is matches


@given(TOKENS, st.data())
def test_any_token_may_be_replaced_by_a_star(tokens: list[str], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(tokens) - 1))
    pattern = [*tokens]
    pattern[place] = "*"
    assert compile_pattern(".".join(pattern))(".".join(tokens))
    assert compile_pattern(".".join([*tokens[:place], ">"]))(".".join(tokens))


def test_a_binding_is_copied_to_its_node() -> None:
    assert BINDINGS.republish is not None
    mapped = republish_mapping(*BINDINGS.republish)
    assert mapped("uid-1.n_1") == "cotenant.v1.bound.n_1.uid-1"
    assert mapped("lease.scheduler.epoch") is None


def test_a_refused_key_is_named_with_what_was_expected() -> None:
    assert check_key("Pod.default.web-1") == "Pod.default.web-1"
    with pytest.raises(InvalidKeyError, match=r"got 'a\.\.b' \(4 characters\)"):
        check_key("a..b")
