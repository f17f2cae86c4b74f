"""``cotenant plan`` as a command: what it asks the gateway, what it prints, how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from cotenant.testing import FakeGateway
from cotenant_simulator.testing import body_of, node, pod, quota

DRY = "POST /v1/apply"
SNAPSHOT = "GET /v1/snapshot"


@pytest.fixture(scope="module")
def live() -> dict[str, Any]:
    return body_of(node("n1"), node("n2"), pod("web"), quota("team", "1", "4"))


@pytest.fixture
def planned(ask, gateway: FakeGateway, live, tmp_path: Path):
    """Run a plan for these objects against a gateway that finds nothing wrong with them."""

    def run(*manifests: dict[str, Any], options: tuple[str, ...] = ()):
        results = [{"kind": one["kind"], "name": one["metadata"]["name"], "action": "created"} for one in manifests]
        gateway.answers |= {DRY: (200, {"results": results}), SNAPSHOT: (200, live)}
        file = tmp_path / "change.yaml"
        file.write_text("\n---\n".join(json.dumps(one) for one in manifests))
        return ask("plan", *(("-f", str(file)) if manifests else ()), *options)

    return run


def test_what_fits_ends_with_zero_and_names_the_node(planned) -> None:
    done = planned(pod("new", quota="team"))
    assert done.status == 0
    assert "default/new" in done.out
    assert "team" in done.out
    assert "everything fits: 1 would land, 1 stay" in done.out
    assert "nothing was written" in done.out


def test_the_live_gateway_is_asked_dry_and_for_a_copy_only(planned, gateway: FakeGateway) -> None:
    planned(pod("new"))
    assert [(one.method, one.path) for one in gateway.asked] == [("POST", "/v1/apply"), ("GET", "/v1/snapshot")]
    assert gateway.asked[0].query == {"dryRun": "true"}


def test_what_does_not_fit_ends_with_two_and_says_what_would_help(planned) -> None:
    done = planned(pod("big", "9"))
    assert done.status == 2
    assert "Would not fit:" in done.out
    assert "InsufficientResource" in done.out
    assert "not everything fits: 1 not fit" in done.out


def test_a_drain_moves_what_runs(planned) -> None:
    first = json.loads(planned(options=("--drain", "n1", "-o", "json")).out)
    second = json.loads(planned(options=("--drain", "n2", "-o", "json")).out)
    moves = [(row["pod"], row["from"], row["to"]) for found in (first, second) for row in found["moves"]]
    assert moves in ([("default/web", "n1", "n2")], [("default/web", "n2", "n1")])


def test_all_lists_what_stays(planned) -> None:
    assert json.loads(planned(pod("new"), options=("-o", "json")).out)["stays"] == 1
    listed = json.loads(planned(pod("new"), options=("--all", "-o", "json")).out)["stays"]
    assert [row["pod"] for row in listed] == ["default/web"]
    assert "Stay:" in planned(pod("new"), options=("--all",)).out


def test_json_is_the_same_every_time(planned) -> None:
    assert planned(pod("new"), options=("-o", "json")).out == planned(pod("new"), options=("-o", "json")).out


def test_faults_name_file_and_line(ask, gateway: FakeGateway, tmp_path: Path) -> None:
    fault = {"document": 1, "line": 3, "field": "spec.containers[0].comand", "message": "unknown field"}
    gateway.answers[DRY] = (400, {"error": {"reason": "Invalid", "message": "no", "errors": [fault]}})
    file = tmp_path / "bad.yaml"
    file.write_text(json.dumps(pod("bad"), indent=1))
    done = ask("plan", "-f", str(file))
    assert done.status == 3
    assert f"{file}:3: spec.containers[0].comand: unknown field" in done.err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "a plan needs a change"),
        (("--drain", "n9"), "no node 'n9'; known: n1, n2"),
        (("--drain", "n1", "--for", "0s"), "--for: expected a duration"),
        (("--drain", "n1", "--for", "soon"), "--for: expected a duration"),
        (("--delete", "web"), "expected KIND/NAME"),
        (("--delete", "spaceship/web"), "no kind 'spaceship'"),
    ],
)
def test_wrong_options_end_with_three(planned, options: tuple[str, ...], told: str) -> None:
    done = planned(options=options)
    assert done.status == 3
    assert told in done.err
    assert "Traceback" not in done.err


def test_an_older_gateway_is_told_apart_from_a_wrong_file(ask, gateway: FakeGateway) -> None:
    gateway.answers[SNAPSHOT] = (200, {"buckets": {}})
    done = ask("plan", "--drain", "n1")
    assert done.status == 1
    assert "snapshot cannot be read" in done.err
