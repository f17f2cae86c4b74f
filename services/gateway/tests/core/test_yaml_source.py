import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_gateway.core.yaml_source import SourceError, from_data, load


def only(text: str) -> dict:
    (document,) = load(text)
    return dict(document.data)


@pytest.mark.parametrize("text", ["0.1", "1e3", "010", "1_000", "1:30", "0x10", "yes", "on", "2026-01-01", ".5", "+5"])
def test_what_readers_disagree_about_stays_text(text):
    assert only(f"kind: A\nv: {text}") == {"kind": "A", "v": text}


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3), ("-7", -7), ("true", True), ("~", None), ("", None), ('"3"', "3")]
)
def test_plain_words_that_every_reader_knows(text, value):
    assert only(f"kind: A\nv: {text}") == {"kind": "A", "v": value}


@given(st.decimals(min_value=0, max_value=10**6, places=6))
def test_a_fraction_is_never_rounded(number):
    assert only(f"kind: A\nv: {number}")["v"] == str(number)


def test_json_keeps_the_text_of_fractions():
    assert only('{\n\t"kind": "A", "v": 0.30}') == {"kind": "A", "v": "0.30"}


def test_documents_lists_and_arrays_are_flattened_with_their_lines():
    text = "kind: A\n---\n# only a comment\n---\nkind: List\nitems:\n- kind: B\n  x: 1\n- kind: C\n---\n- kind: D\n"
    documents = load(text)
    assert [(d.index, d.data["kind"]) for d in documents] == [(1, "A"), (2, "B"), (3, "C"), (4, "D")]
    assert documents[1].line_of(("x",)) == 8
    assert documents[1].line_of(("missing", "below")) == 7


def test_merge_keys_and_anchors_work():
    assert only("kind: A\nbase: &b {x: 1, y: 2}\nuse: {<<: *b, y: 3}")["use"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("kind: A\nkind: B", 2, "appears twice"),
        ("kind: A\nb: }", 2, "not valid YAML"),
        ("kind: A\n---\njust words", 3, "expected an object"),
        ("{[1]: 2}", 1, "plain words"),
        ("- 5", 1, "expected an object"),
    ],
)
def test_bad_text_names_its_line(text, line, part):
    with pytest.raises(SourceError, match=part) as caught:
        load(text)
    assert caught.value.line == line


def test_an_alias_bomb_is_refused():
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9))
    with pytest.raises(SourceError, match="200000 values"):
        load(f"kind: A\na0: &a0 x\n{levels}")


def test_deep_nesting_is_refused():
    with pytest.raises(SourceError):
        load("kind: A\nv: " + "[" * 500 + "]" * 500)


def test_objects_of_other_services_lose_their_floats():
    (document,) = from_data([{"kind": "A", "v": [0.1, {"w": 2.5}]}])
    assert document.data == {"kind": "A", "v": ["0.1", {"w": "2.5"}]}


def test_json_spells_emoji_as_a_surrogate_pair():
    text = json.dumps({"kind": "Pod", "a": "\U0001f600", "b": "\\ud83d\\ude00", "c": "a/b"}).replace("a/b", "a\\/b")
    (document,) = load(text)
    assert document.data == {"kind": "Pod", "a": "\U0001f600", "b": "\\ud83d\\ude00", "c": "a/b"}
    with pytest.raises(SourceError):
        load('{"a": "\\ud800"}')


def test_many_small_bombs_are_one_large_one():
    bomb = "a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
    bomb += "d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d]\n"
    load(bomb)
    with pytest.raises(SourceError, match="in all; split it"):
        load("---\n".join([bomb] * 10))
