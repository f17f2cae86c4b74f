"""The two programs that run inside the images."""

import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cotenant.bus_users import write_users
from cotenant.testing import load_program
from cotenant_agent.config import AgentSettings
from cotenant_common.contracts.server_config import Login

DOCKER = Path(__file__).parents[2] / "deploy" / "docker"


def program(name: str) -> Any:
    return load_program(DOCKER / f"{name}.py")


@contextmanager
def answering(statuses: dict[str, int]) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"reason": "reading the buckets"}'
            self.send_response(statuses[self.path])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("healthz", "readyz", "status", "said"),
    [(200, 200, 0, ""), (200, 503, 1, "/readyz: 503"), (503, 200, 1, "/healthz: 503")],
)
def test_a_container_is_healthy_when_both_answer(
    healthz: int, readyz: int, status: int, said: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with answering({"/healthz": healthz, "/readyz": readyz}) as port:
        monkeypatch.setenv("COTENANT_HTTP_PORT", str(port))
        assert program("healthcheck").main() == status
    shown = capsys.readouterr().out
    assert said in shown
    assert not said or "reading the buckets" in shown


def test_a_container_that_does_not_answer_is_unhealthy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering({}) as port:
        pass
    monkeypatch.setenv("COTENANT_HTTP_PORT", str(port))
    assert program("healthcheck").main() == 1
    assert "no answer on port" in capsys.readouterr().out


def hierarchy(root: Path, name: str) -> Path:
    (root / name).mkdir()
    (root / name / "cgroup.procs").write_text("")
    return root / name / "cgroup.procs"


def test_the_agent_leaves_the_groups_that_it_does_not_write(tmp_path: Path) -> None:
    kept = [hierarchy(tmp_path, name) for name in ("cpu", "memory", "pids")]
    left = [hierarchy(tmp_path, name) for name in ("devices", "blkio", "systemd")]
    unified = hierarchy(tmp_path, "unified")
    (tmp_path / "unified" / "cgroup.controllers").write_text("")
    assert program("agent_start").leave_foreign_groups(tmp_path) == ["blkio", "devices", "systemd"]
    assert all(path.read_text().isdigit() for path in left)
    assert not [path for path in (*kept, unified) if path.read_text()]


def test_the_agent_takes_the_login_of_its_node(tmp_path: Path) -> None:
    write_users(tmp_path, ["n1", "ip-10-0-0-2.internal"], [], Login.NKEY)
    login = program("agent_start").own_login(tmp_path, "ip-10-0-0-2.internal")
    assert login["COTENANT_AGENT_NATS_USER"] == "agent-ip-10-0-0-2_internal"
    assert Path(login["COTENANT_AGENT_NATS_NKEY_FILE"]) == tmp_path / "agent-ip-10-0-0-2_internal.secret"
    fields = {f"COTENANT_AGENT_{name.upper()}" for name in AgentSettings.model_fields}
    assert set(login) <= fields


@pytest.mark.parametrize(
    ("node", "said"),
    [(None, "needs COTENANT_AGENT_NODE"), ("n2", "agent-n2.secret; add the node"), ("*", "COTENANT_AGENT_NODE")],
)
def test_an_agent_without_a_login_says_which_one_it_needs(node: str | None, said: str, tmp_path: Path) -> None:
    write_users(tmp_path, ["n1"], [], Login.NKEY)
    with pytest.raises(ValueError, match=re.escape(said)):
        program("agent_start").own_login(tmp_path, node)


def test_the_start_program_refuses_what_it_does_not_know() -> None:
    with pytest.raises(SystemExit, match="expected --logins DIR or nothing, got --login x"):
        program("agent_start").main(["--login", "x"])
