from pathlib import Path

import pytest

from cotenant.cli.manifests import identity, join, place_of, read_documents, split
from cotenant.errors import BadInputError

TWO = "# first\nkind: Pod\nmetadata: {name: a}\n---\n\nkind: Pod\nmetadata: {name: b, namespace: x}\n"


def test_documents_know_their_line_and_keep_their_text() -> None:
    first, second = split("f.yaml", TWO)
    assert (first.place, second.place) == ("f.yaml:2", "f.yaml:6")
    assert "metadata: {name: a}" in first.text
    assert identity(second) == ("Pod", "x", "b")


def test_a_separator_inside_a_block_is_text() -> None:
    (document,) = split("f", "kind: ConfigMap\ndata:\n  x: |\n    a\n    ---\n    b\n")
    assert "---\n    b" in document.text


def test_lines_of_the_joined_stream_lead_back_to_the_file() -> None:
    documents = [*split("a.yaml", TWO), *split("b.yaml", "---\n# c\nkind: X\nspec:\n  y: 1\n")]
    lines = join(documents).splitlines()
    places = {text: place_of(documents, number) for number, text in enumerate(lines, start=1)}
    assert places["metadata: {name: b, namespace: x}"] == "a.yaml:7"
    assert places["  y: 1"] == "b.yaml:5"


def test_empty_documents_are_none() -> None:
    assert split("f", "---\n---\n# only a comment\n") == []


def test_bad_yaml_is_named_by_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("kind: Pod\nmetadata: {name: a\n")
    with pytest.raises(BadInputError, match=r"bad\.yaml:3:1: not YAML"):
        read_documents([str(file)])


def test_a_directory_is_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("kind: B\n")
    (tmp_path / "a.yml").write_text("kind: A\n")
    (tmp_path / "notes.txt").write_text("kind: C\n")
    assert [document.text.strip() for document in read_documents([str(tmp_path)])] == ["kind: A", "kind: B"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"# nothing\n"])
def test_files_without_objects_are_bad_input(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "f.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInputError, match=r"f\.yaml"):
        read_documents([str(file)])
