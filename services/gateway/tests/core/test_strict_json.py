import json

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_gateway.core import strict_json
from cotenant_gateway.core.validate.meta import parse_selector

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(VALUES)
def test_what_is_accepted_can_be_encoded_and_shown(value):
    try:
        parsed = strict_json.parse(json.dumps(value))
    except ValueError as problem:
        assert str(problem)  # noqa: PT017 - either outcome is fine
        return
    msgpack.packb(parsed)
    json.dumps(parsed, allow_nan=False)


BAD = ("[" * 100_000, "[" * 100 + "]" * 100, "1e999", "NaN", "9" * 5000, '"\\udc00"', "", "{")


@pytest.mark.parametrize("text", BAD)
def test_the_rest_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"\w"):
        strict_json.parse(text)


@given(st.text(max_size=20))
def test_any_selector_is_read_or_refused(text):
    try:
        assert "matchExpressions" in parse_selector(text)
    except ValueError as problem:
        assert "expected key=value" in str(problem)  # noqa: PT017 - either outcome is fine
