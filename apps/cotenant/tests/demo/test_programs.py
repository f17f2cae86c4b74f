import os

import pytest

from cotenant.demo import plan, programs
from cotenant.demo.programs import Programs, User
from cotenant.errors import BadInputError

USER = User(1000, 1000, "tests")


@pytest.fixture
def made(tmp_path, examples):
    return Programs(examples, "/usr/bin/python3", USER, tmp_path)


def test_the_examples_of_this_tree_are_found(examples):
    assert programs.find_examples(None) == examples


def test_a_folder_without_examples_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(BadInputError, match="run the demo from a clone"):
        programs.find_examples(tmp_path)


def test_the_service_is_a_prod_pod_that_is_ready_when_it_answers(made):
    pod = programs.service_pod(made, 8090, 2)

    container = pod["spec"]["containers"][0]
    assert pod["metadata"]["labels"] == {"koordinator.sh/qosClass": "LS"}
    assert pod["spec"]["priorityClassName"] == "koord-prod"
    assert container["readinessProbe"]["httpGet"]["port"] == 8090
    assert container["resources"]["requests"]["cpu"] == "1000m"


def test_neighbours_ask_for_batch_resources_and_state_their_user(made):
    greedy = plan.neighbours(2)[1]
    pod = programs.neighbour_pod(made, greedy, "3-cotenant", 512 * plan.MIB)

    container = pod["spec"]["containers"][0]
    assert pod["metadata"]["labels"] == {"koordinator.sh/qosClass": "BE"}
    assert container["securityContext"] == {"runAsUser": 1000, "runAsGroup": 1000}
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert set(container["resources"]["requests"]) == {"kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"}
    assert container["command"][container["command"].index("--balloon-mib") + 1] == "512"


def test_plain_neighbours_end_by_themselves_and_pods_are_ended(made):
    batch = plan.neighbours(2)

    assert "--seconds" in made.neighbour_command(batch[0], "0-weights", 0, 60)
    assert "--seconds" not in made.neighbour_command(batch[0], "0-weights", 0, None)


def test_segments_do_not_share_counters(made):
    first = plan.neighbours(2)[0]

    assert made.counter(first, "0-weights") != made.counter(first, "4-weights")


def test_root_hands_the_work_to_nobody_when_the_programs_are_open_to_all(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setattr(programs, "_world_readable", lambda _: True)

    assert programs.choose_user([programs.Path("/x")]).uid == 65534


def test_root_says_why_when_the_work_stays_with_root(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setattr(programs, "_world_readable", lambda _: False)

    assert "others may not read /x" in programs.choose_user([programs.Path("/x")]).why


def test_under_sudo_the_work_runs_as_the_person_behind_it(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1235")

    assert programs.choose_user([]) == User(1234, 1235, "the user behind sudo")


def test_a_file_behind_a_closed_directory_is_not_readable_by_others(tmp_path):
    tmp_path.chmod(0o700)
    file = tmp_path / "program.py"
    file.write_text("")
    file.chmod(0o644)

    assert not programs._world_readable(file)
    assert programs._world_readable(programs.Path(os.devnull).parent / "null")
