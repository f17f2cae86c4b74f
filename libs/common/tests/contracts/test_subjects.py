import re
from itertools import combinations
from pathlib import Path

import pytest

from cotenant_common.bus.matching import compile_pattern
from cotenant_common.contracts import permissions
from cotenant_common.contracts.buckets import BUCKETS, is_bookkeeping
from cotenant_common.contracts.messages.events import EVENT_TYPES
from cotenant_common.contracts.render import rendered
from cotenant_common.contracts.subjects import (
    EVENTS_WILDCARD,
    NODE_USAGE,
    POD_EVICT,
    TOPICS,
    dead_subject,
    event_subject,
    json_subject,
)
from cotenant_common.model.ids import InvalidNameError
from cotenant_common.model.reasons import ReasonCode

ROOT = Path(__file__).parents[4]
RENDERED = rendered()
SUBJECT = re.compile(r"cotenant\.v1\.(tel|evt|cmd|req|bound)(\.[-_A-Za-z0-9]+)+", re.ASCII)


def filled(subject: str) -> str:
    return re.sub(r"\{\w+\}", "x", subject)


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_a_topics_subject_is_valid_and_its_wildcard_matches_it(topic: object) -> None:
    subject = filled(topic.subject)  # type: ignore[attr-defined]
    assert SUBJECT.fullmatch(subject)
    assert compile_pattern(topic.wildcard)(subject)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("one", "other"), list(combinations(TOPICS, 2)), ids=lambda topic: topic.name)
def test_no_two_topics_share_a_subject(one: object, other: object) -> None:
    assert not compile_pattern(one.wildcard)(filled(other.subject))  # type: ignore[attr-defined]
    assert not compile_pattern(other.wildcard)(filled(one.subject))  # type: ignore[attr-defined]
    assert one.name != other.name  # type: ignore[attr-defined]


@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_every_event_type_has_a_subject_of_the_events_stream(event_type: str) -> None:
    for key in ("Pod/default/web.1", "Node/-/n1"):
        subject = event_subject(event_type, key)
        assert SUBJECT.fullmatch(subject)
        assert compile_pattern(EVENTS_WILDCARD)(subject)
        assert json_subject(subject).startswith("cotenant.v1.json.evt.")


def test_event_types_are_a_set_of_noun_and_verb() -> None:
    assert len(set(EVENT_TYPES)) == len(EVENT_TYPES)
    assert all(re.fullmatch(r"[a-z]+\.[a-z]+", name) for name in EVENT_TYPES)


def test_ids_are_encoded_to_one_token_each() -> None:
    assert NODE_USAGE.format(node="a.b") == "cotenant.v1.tel.node.usage.a_b"
    assert NODE_USAGE.wildcard == "cotenant.v1.tel.node.usage.*"
    assert POD_EVICT.format() == "cotenant.v1.cmd.pod.evict"
    assert event_subject("pod.bound", "Pod/default/web.1") == "cotenant.v1.evt.pod.bound.default.web_1"
    assert event_subject("node.hot", "Node/-/n1") == "cotenant.v1.evt.node.hot.n1"
    assert dead_subject("scheduler") == "cotenant.v1.dead.scheduler"
    with pytest.raises(InvalidNameError):
        NODE_USAGE.format(node="a b")


def test_requests_have_replies_and_nothing_else_does() -> None:
    for topic in TOPICS:
        assert (topic.reply is not None) == topic.subject.startswith(("cotenant.v1.cmd.", "cotenant.v1.req."))


def test_buckets_have_names_and_writers_of_their_own() -> None:
    assert len({spec.name for spec in BUCKETS}) == len(BUCKETS)
    known = {*permissions.SERVICES, "holder"}
    assert all(set(spec.writer.split(", ")) <= known for spec in BUCKETS)


def test_bookkeeping_keys_are_told_apart() -> None:
    assert [is_bookkeeping(key) for key in ("lease.scheduler", "announced.gateway", "u1.n1", "leased.n1")] == [
        True,
        True,
        False,
        False,
    ]


def test_reason_codes_are_camel_case_and_unique() -> None:
    values = [code.value for code in ReasonCode]
    assert len(set(values)) == len(values)
    assert all(re.fullmatch(r"[A-Z][A-Za-z]+", value) for value in values)


@pytest.mark.parametrize("path", RENDERED)
def test_generated_documents_are_fresh(path: str) -> None:
    stored = ROOT / path
    assert stored.exists(), f"{path} is missing: run `cotenant contracts write`"
    assert stored.read_text(encoding="utf-8") == RENDERED[path], f"{path} is stale: run `cotenant contracts write`"
