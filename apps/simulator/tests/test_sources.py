from pathlib import Path

import pytest

from cotenant_simulator import ScenarioError, simulate, simulate_chaos
from cotenant_simulator.policies import read_policy
from cotenant_simulator.sources import read_text


def test_the_error_of_a_file_names_it_once(tmp_path: Path):
    missing = tmp_path / "missing.yaml"
    with pytest.raises(ScenarioError) as caught:
        read_text(missing)
    assert str(caught.value) == f"{missing}: cannot be read: No such file or directory"


def test_text_in_another_encoding_is_found_by_its_line(tmp_path: Path):
    path = tmp_path / "latin.yaml"
    path.write_bytes("kind: Scenario\nname: gr\u00fcn\n".encode("latin-1"))
    with pytest.raises(ScenarioError) as caught:
        read_text(path)
    assert str(caught.value) == f"{path}:2: cannot be read: it is not UTF-8 text"


def test_whoever_reads_a_file_that_is_no_text_says_so(tmp_path: Path):
    path = tmp_path / "binary.yaml"
    path.write_bytes(bytes(range(256)))
    says = "cannot be read: it is not UTF-8 text"
    for text, status in (simulate(path), simulate_chaos(path, 1)):
        assert (status, says in text) == (3, True)
    with pytest.raises(ScenarioError, match=says):
        read_policy(path)
