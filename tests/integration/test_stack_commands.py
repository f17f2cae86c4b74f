"""The command line against a stack of its own: nats-server and every service in one process."""

import itertools
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cotenant.testing import Cli

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="the agent needs Linux"),
]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    found = Cli(tmp_path_factory.mktemp("stack") / "home")
    found("up")
    yield found
    found("down", "--grace", "2s", status=None)


@pytest.fixture
def name() -> str:
    return f"pod-{next(_numbers)}"


def pod(name: str, *command: str, batch_cpu: int | None = None) -> str:
    """Of the free band, which needs no room: what a busy machine has left to sell must not decide these tests."""
    amounts = {} if batch_cpu is None else {"kubernetes.io/batch-cpu": str(batch_cpu)}
    container = {
        "name": "main",
        "command": list(command),
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {"runAsUser": os.getuid()},
    }
    band = "koord-free" if batch_cpu is None else "koord-batch"
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"koordinator.sh/qosClass": "BE"}},
            "spec": {"priorityClassName": band, "restartPolicy": "Never", "containers": [container]},
        }
    )


def test_every_service_is_ready_and_listens_on_loopback(cli: Cli) -> None:
    found = cli.json("status")
    assert found["ready"]
    assert {row["service"] for row in found["services"]} >= {
        "gateway", "scheduler", "quota", "profiler", "descheduler", "agent", "nats-server",
    }  # fmt: skip
    assert found["gateway_url"].startswith("http://127.0.0.1:")
    assert found["nats_url"].startswith("nats://127.0.0.1:")


def test_a_second_stack_in_one_home_is_refused(cli: Cli) -> None:
    assert "already runs" in cli("up", status=5)


def test_this_machine_is_a_node(cli: Cli) -> None:
    (node,) = cli.json("get", "nodes")
    assert node["ready"]


def test_a_pod_runs_prints_and_is_deleted(cli: Cli, name: str) -> None:
    manifest = pod(name, "/bin/sh", "-c", "echo hello; exec sleep 60")
    cli("apply", "-f", "-", text=manifest)
    cli("wait", name, "--for", "running", "--timeout", "30s")
    assert cli("logs", name) == "hello\n"
    assert name in cli("get", "pods")
    cli("delete", "pod", name)
    assert name not in cli("get", "pods", status=None)


def test_applying_twice_changes_nothing(cli: Cli, name: str) -> None:
    manifest = pod(name, "/bin/true")
    assert "created" in cli("apply", "-f", "-", text=manifest)
    assert "unchanged" in cli("apply", "-f", "-", text=manifest)


def test_a_dry_run_writes_nothing(cli: Cli, name: str) -> None:
    assert "created (dry run)" in cli("apply", "--dry-run", "-f", "-", text=pod(name, "/bin/true"))
    cli("get", "pod", name, status=3)


def test_what_does_not_fit_is_explained(cli: Cli, name: str) -> None:
    cli("apply", "-f", "-", text=pod(name, "/bin/true", batch_cpu=900_000))
    cli("wait", name, "--for", "running", "--timeout", "2s", status=2)
    told = cli("explain", name)
    assert "InsufficientResource" in told
    assert "batch-cpu" in told
    cli("delete", "pod", name)


def test_bad_manifests_name_the_place_and_change_nothing(cli: Cli, name: str) -> None:
    good = pod(name, "/bin/true")
    bad = "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec:\n  containers:\n  - name: main\n    comand: [x]\n"
    said = cli("apply", "-f", "-", text=f"{good}\n---\n{bad}", status=3)
    assert "stdin:9: spec.containers[0].comand: unknown field" in said
    assert "Traceback" not in said
    cli("get", "pod", name, status=3)


def test_run_waits_for_the_command_and_passes_its_output_on(cli: Cli) -> None:
    out = cli("run", "--rm", "--priority", "free", "--timeout", "30s", "--", "sh", "-c", "id -u; pwd")
    assert out.splitlines() == [str(os.getuid()), str(Path.cwd())]


def test_a_command_that_fails_fails_the_run(cli: Cli) -> None:
    said = cli("run", "--rm", "--priority", "free", "--timeout", "30s", "--", "sh", "-c", "exit 7", status=1)
    assert "7" in said


def test_a_job_completes(cli: Cli, name: str) -> None:
    cli("run", "--name", name, "--units", "3", "--priority", "free", "--", "true")
    cli("wait", f"job/{name}", "--timeout", "40s")
    cli("delete", "job", name)


@dataclass(frozen=True)
class Streamed:
    id: str
    type: str


def read_events(url: str, token: str, count: int, last_id: str | None) -> list[Streamed]:
    """What ``curl -N`` sees, cut after some events."""
    request = urllib.request.Request(f"{url}/v1/events?since=1h", headers={"Authorization": f"Bearer {token}"})
    request.add_header("Accept", "text/event-stream")
    if last_id is not None:
        request.add_header("Last-Event-ID", last_id)
    found: list[Streamed] = []
    event_id = ""
    with urllib.request.urlopen(request, timeout=10) as response:
        for raw in response:
            field, _, value = raw.decode().rstrip("\n").partition(": ")
            if field == "id":
                event_id = value
            elif field == "data":
                found.append(Streamed(event_id, json.loads(value)["type"]))
                if len(found) == count:
                    break
    return found


def test_an_event_stream_resumes_without_gap_or_duplicate(cli: Cli, name: str) -> None:
    cli("run", "--name", name, "--priority", "free", "--", "true")
    cli("wait", name, "--timeout", "30s")
    status = cli.json("status")
    token = (cli.home / "api-token").read_text().strip()
    everything = read_events(status["gateway_url"], token, 6, None)
    first = read_events(status["gateway_url"], token, 3, None)
    rest = read_events(status["gateway_url"], token, 3, first[-1].id)
    assert first + rest == everything
    assert len({event.id for event in everything}) == 6


def test_the_api_wants_the_token(cli: Cli) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(cli.json("status")["gateway_url"] + "/v1/pods", timeout=5)


def test_a_cordoned_node_takes_no_pod(cli: Cli, name: str) -> None:
    (node,) = cli.json("get", "nodes")
    cli("cordon", node["name"])
    try:
        cli("apply", "-f", "-", text=pod(name, "/bin/true"))
        cli("wait", name, "--timeout", "2s", status=2)
        assert cli("why-not", node["name"], name, status=2)
    finally:
        cli("uncordon", node["name"])
    cli("wait", name, "--timeout", "30s")


def test_an_evicted_pod_comes_back(cli: Cli, name: str) -> None:
    cli("apply", "-f", "-", text=pod(name, "/bin/sleep", "60"))
    cli("wait", name, "--for", "running", "--timeout", "30s")
    before = cli.json("get", "pod", name)["uid"]
    assert "would be evicted" in cli("evict", "--dry-run", name)
    cli("evict", name)

    def successor() -> bool:
        found = cli.json("get", "pod", name)
        return found["uid"] != before and found["phase"] == "Running"

    assert any(successor() for _ in range(40))
    cli("delete", "pod", name)


def test_views_answer(cli: Cli) -> None:
    (node,) = cli.json("get", "nodes")
    for command in (("top", "nodes"), ("top", "pods"), ("top", "quotas"), ("quota", "tree"), ("policy", node["name"])):
        cli.json(*command)
    cli("describe", "node", node["name"])
