"""``cotenant plan`` against a stack of its own: what it says, and that it leaves no trace."""

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.testing import Cli

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="the agent needs Linux"),
]

SLEEP = ["/bin/sleep", "600"]
_RENEWED = ("heartbeats", "leases")
_FOLLOW_THE_LOAD = ("overcommit", "quotastatus")
"""What this machine has left to sell moves by itself, with whatever else runs here."""


def pod(name: str, cpu: str = "100m") -> str:
    """The user is stated: one that is implied would differ between whoever runs these tests."""
    container = {
        "name": "main",
        "command": SLEEP,
        "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}},
        "securityContext": {"runAsUser": os.getuid()},
        "env": [{"name": "PLAIN", "value": "told as everywhere"}],
    }
    metadata = {"name": name, "labels": {"koordinator.sh/qosClass": "LS"}}
    spec = {"priorityClassName": "koord-prod", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    found = Cli(tmp_path_factory.mktemp("plan") / "home")
    found("up")
    found("apply", "-f", "-", text=pod("web"))
    found("wait", "web", "--for", "running", "--timeout", "30s")
    yield found
    found("down", "--grace", "2s", status=None)


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["pod"] for row in rows]


def substance(snapshot: Any) -> dict[str, dict[str, int]]:
    """Revision of every key of every state bucket, the marks of the buckets' own machinery aside."""
    return {
        name: {
            one["key"]: one["revision"]
            for one in bucket["entries"]
            if not one["key"].startswith(("lease.", "announced."))
        }
        for name, bucket in snapshot["buckets"].items()
        if name not in _RENEWED
    }


def test_a_plan_says_where_a_pod_would_land_and_leaves_no_trace(cli: Cli) -> None:
    before = substance(cli.get("/v1/snapshot"))
    found = cli.json("plan", "-f", "-", text=pod("new"))
    after = substance(cli.get("/v1/snapshot"))
    assert found["fits"]
    assert names(found["lands"]) == ["default/new"]
    cli("get", "pod", "new", status=3)
    assert {name: keys for name, keys in after.items() if name not in _FOLLOW_THE_LOAD} == {
        name: keys for name, keys in before.items() if name not in _FOLLOW_THE_LOAD
    }
    (uid,) = [result["uid"] for result in found["objects"]]
    assert not [key for keys in after.values() for key in keys if uid in key or key.endswith(".new")]


def test_what_does_not_fit_ends_with_two_and_says_why(cli: Cli) -> None:
    said = cli("plan", "-f", "-", text=pod("big", "900"), status=2)
    assert "default/big" in said
    assert "InsufficientResource" in said
    assert "not everything fits" in said


def test_a_drained_node_says_who_would_not_run(cli: Cli) -> None:
    (node,) = cli.json("get", "nodes")
    found = cli.json("plan", "--drain", node["name"], status=2)
    assert names(found["does_not_fit"]) == ["default/web"]
    assert found["does_not_fit"][0]["ran_on"] == node["name"]
    assert not cli.json("get", "nodes")[0].get("unschedulable")


def test_a_deletion_says_who_would_leave(cli: Cli) -> None:
    assert names(cli.json("plan", "--delete", "pod/web")["goes"]) == ["default/web"]
    assert "web" in cli("get", "pods")


def test_bad_input_is_told_as_apply_tells_it(cli: Cli) -> None:
    bad = "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec:\n  containers:\n  - name: main\n    comand: [x]\n"
    assert "stdin:7: spec.containers[0].comand: unknown field" in cli("plan", "-f", "-", text=bad, status=3)
    assert "no node 'nowhere'" in cli("plan", "--drain", "nowhere", status=3)
    assert "does not exist" in cli("plan", "--delete", "pod/nobody", status=3)
    assert "needs a change" in cli("plan", status=3)


def test_a_snapshot_wants_the_token_and_shows_what_the_api_shows(cli: Cli) -> None:
    url = cli.json("status")["gateway_url"] + "/v1/snapshot"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, timeout=5)
    found = cli.get("/v1/snapshot")
    assert not any("token" in name for name in found["settings"]["gateway"])
    keys = [one["key"] for bucket in found["buckets"].values() for one in bucket["entries"]]
    assert "Pod.default.web" in keys
    assert not any(key.startswith("lease.") and not key.endswith(".epoch") for key in keys)


def test_nobody_to_ask_ends_with_four(tmp_path: Path) -> None:
    assert "no stack runs" in Cli(tmp_path)("plan", "--drain", "x", status=4)
