import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.model import ids

NAMES = st.from_regex(re.compile(r"[a-z0-9]([-a-z0-9.]{0,40}[a-z0-9])?", re.ASCII), fullmatch=True)


@given(NAMES)
def test_names_survive_the_trip_through_a_token(name: str) -> None:
    token = ids.encode_token(name)
    assert "." not in token
    assert ids.decode_token(token) == name


@pytest.mark.parametrize("name", ["", "a_b", "a b", "a*", ">", "a\n", "a\r\nPUB x", "é", "x" * 513, "$KV"])
def test_what_would_break_a_subject_is_refused(name: str) -> None:
    with pytest.raises(ids.InvalidNameError, match="expected a Kubernetes name"):
        ids.encode_token(name)


def test_spec_keys_name_kind_namespace_and_name() -> None:
    assert ids.spec_key("Pod", "default", "web-1.a") == "Pod.default.web-1_a"
    assert ids.spec_key("Node", None, "n1") == "Node.-.n1"
    assert ids.object_key("Node", None, "n1") == "Node/-/n1"


def test_a_pods_identity_follows_from_its_history() -> None:
    assert ids.pod_uid("default", "web", 0, "s") == ids.pod_uid("default", "web", 0, "s")
    others = {
        ids.pod_uid("default", "web", 1, "s"),
        ids.pod_uid("default", "web", 0, "t"),
        ids.pod_uid("d", "web", 0, "s"),
    }
    assert ids.pod_uid("default", "web", 0, "s") not in others
    assert len(others) == 3


@pytest.mark.parametrize(
    ("name", "valid"),
    [("a", True), ("a.b-c", True), ("", False), ("A", False), ("-a", False), ("a..b", False), ("a" * 254, False)],
)
def test_subdomains(name: str, valid: bool) -> None:
    assert ids.is_dns_subdomain(name) is valid
