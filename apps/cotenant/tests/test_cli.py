"""Command lines in; output, requests and exit status out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cotenant.cli import quota
from cotenant.cli.main import app
from cotenant.testing import FakeGateway

RUNNING = {
    "namespace": "default", "name": "web", "phase": "Running", "ready": True, "qos": "LS", "node": "n1",
    "uid": "u1", "created_ms": 0,
}  # fmt: skip
PENDING = RUNNING | {
    "name": "sort", "phase": "Pending", "ready": False, "qos": "BE", "node": None,
    "reason": "InsufficientResource", "message": "no node has batch-cpu 4000",
}  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ("gett",),
        ("get",),
        ("get", "pods", "--colour"),
        ("get", "pods", "-o", "xml"),
        ("get", "spaceships"),
        ("top", "spaceships"),
        ("events", "--type", "pod.vanished"),
        ("run", "--cpu", "lots", "--", "true"),
        ("run", "--qos", "GOLD", "--", "true"),
        ("run",),
        ("apply", "-f", "no-such-file.yaml"),
        ("wait", "pod/", "--for", "running"),
        ("wait", "web", "--timeout", "soon"),
        ("delete", "pod"),
        ("up", "--node", "Not_A_Name"),
        ("up", "--cpus", "4096"),
        ("up", "--port", "99999"),
        ("config", "validate", "kitchen"),
        ("simulate", "x.yaml"),
    ],
)
def test_bad_input_is_one_line_and_status_3(ask, arguments: tuple[str, ...]) -> None:
    done = ask(*arguments)
    assert done.status == 3
    assert done.err.startswith("cotenant: ")
    assert done.err.count("\n") == 1
    assert done.out == ""


@pytest.mark.parametrize("arguments", [("get", "pods"), ("status",), ("explain", "x"), ("logs", "x"), ("events",)])
def test_without_a_stack_the_status_is_4(cli, arguments: tuple[str, ...]) -> None:
    done = cli(*arguments)
    assert done.status == 4
    assert "no stack runs in" in done.err + done.out


def test_down_without_a_stack_is_done(cli) -> None:
    assert cli("down").out == "nothing to take down\n"


def test_pods_are_a_table(ask, gateway: FakeGateway) -> None:
    gateway.pods = [RUNNING, PENDING]
    header, first, second = ask("get", "pods").out.splitlines()
    assert header.split() == ["NAME", "PHASE", "READY", "QOS", "NODE", "AGE", "REASON"]
    assert first.split()[:5] == ["web", "Running", "yes", "LS", "n1"]
    assert second.split()[-1] == "InsufficientResource"


def test_wide_shows_the_message_uncut(ask, gateway: FakeGateway) -> None:
    gateway.pods = [PENDING | {"message": "x" * 300}]
    assert "x" * 300 in ask("get", "pods", "-o", "wide").out


def test_json_and_yaml_show_what_the_gateway_said(ask, gateway: FakeGateway) -> None:
    gateway.pods = [RUNNING]
    assert json.loads(ask("get", "pods", "-o", "json").out) == [RUNNING]
    assert yaml.safe_load(ask("get", "pod", "web", "-o", "yaml").out) == RUNNING


def test_a_pod_that_is_not_there_is_named(ask) -> None:
    done = ask("get", "pod/ghost")
    assert (done.status, done.err) == (3, "cotenant: no pod 'ghost' in namespace default\n")


def test_apply_sends_all_files_at_once_and_prints_each_object(ask, gateway: FakeGateway, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: Pod\nmetadata: {name: a}\n---\nkind: Pod\nmetadata: {name: b}\n")
    gateway.answers["POST /v1/apply"] = (
        200,
        {"ok": True, "results": [
            {"kind": "Pod", "namespace": "default", "name": "a", "action": "created", "warnings": ["image is ignored"]},
            {"kind": "Pod", "namespace": "default", "name": "b", "action": "unchanged"},
        ]},
    )  # fmt: skip
    done = ask("apply", "-f", str(tmp_path), "--dry-run")
    assert done.out == "pod/a created (dry run)\npod/b unchanged (dry run)\n"
    assert done.err == f"cotenant: warning: {tmp_path / 'a.yaml'}:1: image is ignored\n"
    assert gateway.asked[0].query == {"dryRun": "true"}


def test_faults_are_named_by_file_and_line(ask, gateway: FakeGateway, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: Pod\nmetadata: {name: a}\n")
    (tmp_path / "b.yaml").write_text("---\nkind: Pod\nspec:\n  containers: []\n")
    faults = [{"document": 2, "line": 6, "field": "spec.containers", "message": "required: at least one"}]
    body = {"message": "nothing was changed: …", "error": {"reason": "Invalid", "errors": faults}}
    gateway.answers["POST /v1/apply"] = (400, body)
    done = ask("apply", "-f", str(tmp_path))
    assert done.status == 3
    said = f"cotenant: {tmp_path / 'b.yaml'}:4: spec.containers: required: at least one; nothing was changed\n"
    assert done.err == said


def test_every_command_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    names = [command.name or command.callback.__name__ for command in app.registered_commands]
    names += [group.name for group in app.registered_groups]
    assert [name for name in names if f"`{name}" not in text] == []


def test_delete_from_a_file_goes_last_to_first(ask, gateway: FakeGateway, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("kind: ElasticQuota\nmetadata: {name: q}\n---\nkind: Pod\nmetadata: {name: p, namespace: x}\n")
    gateway.answers["DELETE /v1/objects/Pod/x/p"] = (200, {})
    gateway.answers["DELETE /v1/objects/ElasticQuota/default/q"] = (200, {})
    done = ask("delete", "-f", str(file), "--no-wait")
    assert done.out == "pod/p deleted\nelasticquota/q deleted\n"


def test_delete_waits_until_the_object_is_gone(ask, gateway: FakeGateway) -> None:
    gateway.answers["DELETE /v1/objects/Job/default/j"] = (200, {})
    assert ask("delete", "job/j").out == "job/j deleted\n"
    assert [asked.method for asked in gateway.asked] == ["DELETE", "GET"]


def test_delete_takes_the_others_when_one_is_gone_already(ask, gateway: FakeGateway) -> None:
    gateway.answers["DELETE /v1/objects/Pod/default/a"] = (404, {"message": "Pod/default/a does not exist"})
    gateway.answers["DELETE /v1/objects/Pod/default/b"] = (200, {})
    done = ask("delete", "pod", "a", "b", "--no-wait")
    assert (done.status, done.out, done.err) == (3, "pod/b deleted\n", "cotenant: Pod/default/a does not exist\n")
    assert ask("delete", "pod", "a", "b", "--no-wait", "--ignore-not-found").status == 0


def test_many_faults_are_counted_rather_than_all_printed(ask, gateway: FakeGateway, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("kind: Pod\nmetadata: {name: p}\n")
    faults = [{"line": 1, "field": f"f{number}", "message": "unknown field"} for number in range(12)]
    gateway.answers["POST /v1/apply"] = (400, {"error": {"reason": "Invalid", "message": "m", "errors": faults}})
    done = ask("apply", "-f", str(file))
    assert done.status == 3
    assert "f9: unknown field; and 2 more; nothing was changed" in done.err
    assert "f10" not in done.err


def test_run_submits_a_pod_of_the_invoking_user(ask, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "4321")
    monkeypatch.setattr("os.getuid", lambda: 0)
    gateway.answers["POST /v1/apply"] = (200, {"results": [{"kind": "Pod", "name": "n", "action": "created"}]})
    done = ask("run", "--qos", "BE", "--name", "n", "--cpu", "500m", "-e", "A=b=c", "--", "sort", "-r", "--help")
    assert (done.status, done.out) == (0, "pod/n created\n")
    (container,) = json.loads(gateway.asked[0].body)["spec"]["containers"]
    assert container["command"] == ["sort", "-r", "--help"]
    assert container["securityContext"] == {"runAsUser": 1234, "runAsGroup": 4321}
    assert container["resources"]["requests"]["kubernetes.io/batch-cpu"] == "500"
    assert {"name": "A", "value": "b=c"} in container["env"]
    assert container["workingDir"] == str(Path.cwd())


def test_run_and_wait_prints_the_output_and_fails_with_the_command(ask, gateway: FakeGateway) -> None:
    gateway.answers["POST /v1/apply"] = (200, {"results": [{"kind": "Pod", "name": "n", "action": "created"}]})
    gateway.answers["GET /v1/logs/default/n"] = (200, "hello\n")
    gateway.answers["DELETE /v1/objects/Pod/default/n"] = (200, {})
    gateway.pods = [RUNNING | {"name": "n", "phase": "Failed", "message": "exit code 3"}]
    done = ask("run", "--rm", "--name", "n", "--", "false")
    assert done.status == 1
    assert done.out == "hello\n"
    assert "pod/n failed: exit code 3" in done.err
    assert gateway.asked[-1].method == "DELETE"


def test_run_and_wait_says_why_a_command_never_started(ask, gateway: FakeGateway) -> None:
    gateway.answers["POST /v1/apply"] = (200, {"results": [{"kind": "Pod", "name": "n", "action": "created"}]})
    gateway.answers["GET /v1/logs/default/n"] = (404, {"message": "no container of this pod was started here"})
    gateway.pods = [RUNNING | {"name": "n", "phase": "Failed", "message": "command: 'sortt' not found"}]
    done = ask("run", "--wait", "--name", "n", "--", "sortt")
    assert (done.status, done.out) == (1, "")
    assert done.err.endswith("cotenant: pod/n failed: command: 'sortt' not found\n")


def test_a_wait_that_finds_no_place_ends_with_status_2(ask, gateway: FakeGateway) -> None:
    gateway.pods = [PENDING]
    done = ask("wait", "sort", "--for", "running", "--timeout", "100ms")
    assert done.status == 2
    assert "no node has batch-cpu 4000" in done.err


def test_a_wait_for_the_wrong_end_fails_at_once(ask, gateway: FakeGateway) -> None:
    gateway.pods = [RUNNING | {"phase": "Failed", "message": "exit code 1"}]
    done = ask("wait", "web", "--for", "condition=succeeded", "--timeout", "60s")
    assert (done.status, "exit code 1" in done.err) == (1, True)


def test_explain_prints_counts_and_what_would_help(ask, gateway: FakeGateway) -> None:
    refusal = {"reason": "InsufficientResource", "nodes": 2, "message": "batch-cpu 4000 > 900"}
    gateway.answers["GET /v1/explain/default/sort"] = (
        200,
        {"state": "Pending", "reason": "InsufficientResource", "message": "fits nowhere", "scheduler": {
         "nodes_total": 2, "refusals": [refusal],
         "helps": ["ask for 900 or wait"]}},
    )  # fmt: skip
    lines = ask("explain", "pod/sort").out.splitlines()
    assert lines == [
        "pod/sort: Pending (InsufficientResource)",
        "  fits nowhere",
        "  refused by 2 of 2 nodes:",
        "    2 × InsufficientResource: batch-cpu 4000 > 900",
        "  would help: ask for 900 or wait",
    ]


def test_explain_says_that_a_running_pod_is_not_ready(ask, gateway: FakeGateway) -> None:
    gateway.answers["GET /v1/explain/default/web"] = (200, {"state": "Running", "pod": {"ready": False}})
    assert "not ready" in ask("explain", "web").out


def test_why_not_that_does_not_fit_has_status_2(ask, gateway: FakeGateway) -> None:
    reasons = [{"reason": "TaintNotTolerated", "message": "taint x"}]
    gateway.answers["GET /v1/why-not/n1/default/a"] = (200, {"fits": False, "reasons": reasons, "message": ""})
    done = ask("why-not", "n1", "a")
    assert (done.status, "TaintNotTolerated: taint x" in done.out) == (2, True)


def test_a_refused_eviction_has_status_5(ask, gateway: FakeGateway) -> None:
    gateway.answers["POST /v1/evict"] = (409, {"message": "BudgetExceeded: pdb web allows 0"})
    done = ask("evict", "web")
    assert (done.status, done.err) == (5, "cotenant: BudgetExceeded: pdb web allows 0\n")


def test_events_as_json_are_one_per_line(ask, gateway: FakeGateway) -> None:
    gateway.events = [{"type": "pod.bound", "object": "Pod/default/a", "at_ms": 0, "message": "on n1"}]
    assert json.loads(ask("events", "-o", "json").out) == gateway.events[0]
    assert "pod.bound" in ask("events").out


def test_quotas_are_printed_as_a_tree(ask, gateway: FakeGateway) -> None:
    quotas = [{"name": "team", "parent": None, "min": {"cpu": 2000}}, {"name": "child", "parent": "team"}]
    gateway.answers["GET /v1/quota/tree"] = (
        200,
        {"trees": [{"tree": "default", "total": {"cpu": 4000}, "quotas": quotas}]},
    )
    out = ask("quota", "tree").out
    assert "tree default (total cpu 4)" in out
    assert "\n  child" in out


def test_the_tree_says_who_lends_to_whom_now(ask, gateway: FakeGateway) -> None:
    quotas = [{"name": "a", "used": {"cpu": 0}}, {"name": "b", "used": {"cpu": 6000}, "over_since_ms": 5}]
    loans = [{"borrower": "b", "lender": "a", "resource": "cpu", "amount": 1500}]
    gateway.answers["GET /v1/quota/tree"] = (200, {"trees": [{"tree": "default", "quotas": quotas, "loans": loans}]})
    out = ask("quota", "tree").out
    assert "b borrows 1500m cpu from a" in out
    assert [line.split()[-1] for line in out.splitlines() if line.startswith(("a ", "b "))] == ["Open", "Over"]


def test_holding_a_quota_writes_its_stop_policy_and_nothing_else(ask, gateway: FakeGateway) -> None:
    stored = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "q", "namespace": "default", "uid": "u", "annotations": {"a": "b"}},
        "spec": {"max": {"cpu": "4"}},
        "status": {"state": "Open"},
    }
    gateway.answers["GET /v1/objects/ElasticQuota/default/q"] = (200, stored)
    gateway.answers["POST /v1/apply"] = (
        200,
        {"results": [{"kind": "ElasticQuota", "name": "q", "action": "configured"}]},
    )
    assert ask("quota", "hold", "q").out == "elasticquota/q held\n"
    assert ask("quota", "drain", "q", "--dry-run").out == "elasticquota/q would be held and drained\n"
    held = quota.with_policy(stored, "Hold")
    assert held["metadata"] == {
        "name": "q",
        "namespace": "default",
        "annotations": {"a": "b", "cotenant.io/stop-policy": "Hold"},
    }
    assert "status" not in held
    assert quota.with_policy(held, None)["metadata"]["annotations"] == {"a": "b"}


def test_the_token_must_be_readable(cli, gateway: FakeGateway) -> None:
    done = cli("--url", gateway.url, "--token-file", "/no/such/token", "get", "pods")
    assert (done.status, "cannot read the token" in done.err) == (3, True)


def test_doctor_changes_nothing_and_speaks_json(cli, tmp_path: Path) -> None:
    done = cli("doctor", "-o", "json")
    report = json.loads(done.out)
    assert {finding["topic"] for finding in report["findings"]} >= {"machine", "rights", "control", "signals", "stack"}
    assert report["you_get"]
    assert not (tmp_path / "home").exists()


def test_doctor_names_what_stops_up(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.doctor._NEEDED_DISK_BYTES", 1 << 60)
    done = cli("doctor")
    assert (done.status, "MiB free;" in done.out) == (1, True)


def test_starting_the_command_line_imports_nothing_heavy() -> None:
    code = (
        "import sys, cotenant.cli.main\n"
        "heavy = {'aiohttp', 'rich', 'yaml', 'numpy', 'matplotlib', 'nats', 'pydantic', 'psutil'} & set(sys.modules)\n"
        "print(', '.join(sorted(heavy)), end='')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")


def test_leaving_the_foreground_says_what_stays(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "stack.json").write_text("{}")
    monkeypatch.setattr("cotenant.stack.run.main", lambda *_: 0)
    done = cli("up", "--foreground")
    assert (done.status, "`cotenant down` ends them" in done.err) == (0, True)


def test_the_events_example_says_in_one_line_that_no_stack_runs(tmp_path: Path) -> None:
    program = Path(__file__).parents[3] / "examples" / "events" / "watch_events.py"
    done = subprocess.run([sys.executable, program, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("no stack runs here: ")
