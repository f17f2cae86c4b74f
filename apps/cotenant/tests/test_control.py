"""evict, drain, freeze, observe: what an operator asks for and what an answer becomes."""

import json
from typing import Any

import pytest

from cotenant.cli.brakes import freeze_line
from cotenant.cli.values import duration_s
from cotenant.errors import BadInputError
from cotenant.testing import FakeGateway

REFUSED = {
    "granted": False, "reason": "BudgetExceeded", "message": "wants 2 healthy pods; 2 are",
    "numbers": {"healthy": 2}, "error": {"reason": "BudgetExceeded", "message": "wants 2 healthy pods; 2 are"},
}  # fmt: skip


def row(pod: str, **fields: Any) -> dict[str, Any]:
    return {"pod": pod, "granted": True, "reason": None, "message": "m", **fields}


def test_a_refused_eviction_names_its_reason_and_numbers(ask, gateway: FakeGateway) -> None:
    gateway.answers["POST /v1/evict"] = (409, REFUSED)
    done = ask("evict", "web", "--dry-run")
    assert (done.status, done.err) == (5, "cotenant: pod/web stays: BudgetExceeded: wants 2 healthy pods; 2 are\n")
    assert json.loads(ask("evict", "web", "-o", "json").out)["numbers"] == {"healthy": 2}


def test_a_dry_drain_shows_who_leaves_and_who_stays(ask, gateway: FakeGateway) -> None:
    rows = [row("default/a"), row("default/b", granted=False, reason="BudgetExceeded")]
    gateway.answers["POST /v1/drain/n1"] = (200, {"remaining": 2, "pods": rows})
    done = ask("drain", "n1", "--dry-run")
    assert done.status == 5
    assert [line.split()[:2] for line in done.out.splitlines()[1:]] == [
        ["default/a", "leaves"], ["default/b", "BudgetExceeded"],
    ]  # fmt: skip


def test_a_drain_that_runs_out_of_time_says_what_remains(ask, gateway: FakeGateway) -> None:
    stays = row("default/b", granted=False, reason="BudgetExceeded", message="too few")
    gateway.answers["POST /v1/drain/n1"] = (200, {"remaining": 1, "pods": [stays]})
    done = ask("drain", "n1", "--timeout", "0s", "-o", "json")
    assert done.status == 5
    assert "1 pod remains; default/b stays: BudgetExceeded: too few" in done.err


def test_an_empty_node_is_drained(ask, gateway: FakeGateway) -> None:
    gateway.answers["POST /v1/drain/n1"] = (200, {"remaining": 0, "pods": []})
    done = ask("drain", "n1", "--grace", "5s")
    assert (done.status, done.out) == (0, "node/n1 is empty and cordoned\n")
    assert gateway.asked[-1].query["grace_s"] == "5"


def test_a_second_cordon_says_that_nothing_changed(ask, gateway: FakeGateway) -> None:
    answer = {"action": "unchanged", "message": "was cordoned already"}
    gateway.answers["POST /v1/cordon/n1"] = (200, answer)
    assert ask("cordon", "n1").out == "node/n1 was cordoned already\n"
    gateway.answers["POST /v1/uncordon/n1"] = (200, {"action": "uncordoned"})
    assert ask("uncordon", "n1", "--dry-run").out == "node/n1 would be uncordoned\n"


def test_a_freeze_says_who_and_why(ask, gateway: FakeGateway) -> None:
    gateway.answers["POST /v1/freeze"] = (200, {"action": "frozen"})
    assert ask("freeze", "--reason", "launch day").out == "frozen: launch day\n"
    sent = json.loads(gateway.asked[-1].body)
    assert (sent["reason"], "@" in sent["by"]) == ("launch day", True)


@pytest.mark.parametrize("reason", ["", "  ", "a\nb"])
def test_a_freeze_needs_a_reason(ask, reason: str) -> None:
    assert ask("freeze", "--reason", reason).status == 3


def test_one_node_is_frozen_by_a_file_with_everything_down(cli, tmp_path) -> None:
    assert cli("freeze", "--reason", "x", "--node-local").status == 3
    (tmp_path / "home" / "agent").mkdir(parents=True)
    assert cli("freeze", "--reason", "cut off", "--node-local").status == 0
    record = json.loads((tmp_path / "home" / "agent" / "freeze").read_text())
    assert record["reason"] == "cut off"
    assert cli("unfreeze", "--node-local", "--dry-run").out == "this node would be unfrozen\n"
    assert cli("unfreeze", "--node-local").out == "this node is unfrozen\n"
    assert cli("unfreeze", "--node-local").out == "this node was not frozen by hand\n"


def test_observing_names_what_it_is_for(ask, gateway: FakeGateway) -> None:
    gateway.answers["POST /v1/observe"] = (200, {"action": "only observed", "message": "node n1"})
    assert ask("observe", "--node", "n1", "-n", "dev").out == "only observed: node n1\n"
    assert json.loads(gateway.asked[-1].body) == {"nodes": ["n1"], "namespaces": ["dev"]}
    gateway.answers["POST /v1/unobserve"] = (200, {"action": "acts again", "message": ""})
    assert ask("observe", "--all", "--stop").out == "acts again\n"


@pytest.mark.parametrize("arguments", [("--stop",), ("--all", "--node", "n1")])
def test_observing_nothing_or_too_much_is_bad_input(ask, arguments: tuple[str, ...]) -> None:
    assert ask("observe", *arguments).status == 3


def test_the_report_has_the_sum_behind_each_number(ask, gateway: FakeGateway) -> None:
    node = {
        "node": "n1", "observed": True, "frozen": None, "would_evict": ["batch/a holds 5 bytes"],
        "reclaimable": {"batch": {"cpu": 5_000}, "message": "m", "sums": [{"message": "8 - 1 - 2 = 5"}]},
        "cap": {"would_be_milli": 1_500, "is_milli": None, "used_milli": 700, "message": "95% of 8"},
    }  # fmt: skip
    refused = {"pods": ["default/x"], "message": "only observing node n1: would be 1 of 1 granted"}
    scope = {"everything": False, "nodes": ["n1"], "namespaces": []}
    gateway.answers["GET /v1/observe"] = (200, {"scope": scope, "nodes": [node], "evictions": [refused]})
    shown = ask("observe").out
    for text in ("only observed: node n1", "8 - 1 - 2 = 5", "95% of 8", "batch/a holds", "not evicted: default/x"):
        assert text in shown


def test_status_says_who_froze_what_and_what_is_only_observed() -> None:
    freeze = {"reason": "launch", "by": "ann@host", "since_ms": "0"}
    line = freeze_line({"frozen": "launch", "freeze": freeze, "observing": {"nodes": "n1"}})
    assert line is not None
    assert line.startswith("FROZEN by ann@host, ")
    assert line.endswith(" ago: launch. only observing nodes n1")
    assert freeze_line({"frozen": None, "freeze": None, "observing": None}) is None


@pytest.mark.parametrize("line", [1, None])
def test_a_fault_of_a_whole_document_names_the_file(ask, gateway: FakeGateway, tmp_path, line: int | None) -> None:
    fault = {"document": 1, "line": line, "field": "", "message": "expected an object"}
    gateway.answers["POST /v1/apply"] = (400, {"error": {"reason": "Invalid", "message": "m", "errors": [fault]}})
    file = tmp_path / "list.yaml"
    file.write_text("\n- a\n")
    done = ask("apply", "-f", str(file))
    assert (done.status, done.err.startswith(f"cotenant: {file}")) == (3, True)
    assert "expected an object; nothing was changed" in done.err


@pytest.mark.parametrize("text", ["inf", "nan", "-1", "-1s", "1e999", "", "1_0"])
def test_a_duration_is_a_number_that_ends(text: str) -> None:
    with pytest.raises(BadInputError):
        duration_s(text)


@pytest.mark.parametrize("url", ["ftp://h", "localhost:80", "http://", "file:///etc/passwd"])
def test_an_address_that_is_no_gateways_is_bad_input(cli, url: str) -> None:
    assert cli("--url", url, "get", "pods").status == 3


def test_observe_and_another_policy_contradict_each_other(cli) -> None:
    assert cli("up", "--observe", "--policy", "conservative").status == 3
