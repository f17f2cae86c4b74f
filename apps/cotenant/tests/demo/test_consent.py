import dataclasses
import io

import pytest
from rich.console import Console

from cotenant.demo import consent
from cotenant.demo.programs import User
from cotenant.errors import RefusedError
from cotenant_agent import capability
from cotenant_agent.cgroup.layout import LayoutKind

USER = User(65534, 65534, "nobody")


@pytest.fixture
def nothing():
    """A machine that gives this user no groups, but has a systemd that could."""
    return dataclasses.replace(
        capability.probe(), root=False, layout=LayoutKind.NONE, cgroup_version=None, can_delegate=True
    )


@pytest.fixture
def terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("os.geteuid", lambda: 0)


def ask(answer, **options):
    console = Console(file=io.StringIO(), width=160)
    consent.ask(console, USER, yes=options.get("yes", False), read=lambda _: answer)
    return console.file.getvalue()


def test_root_is_explained_before_the_question(terminal):
    text = ask("y")

    assert "runs as root, which it needs for" in text
    assert "put back at the end" in text


def test_a_no_ends_it_before_anything_is_changed(terminal):
    with pytest.raises(RefusedError):
        ask("n")


def test_yes_beforehand_asks_nothing(terminal):
    ask("n", yes=True)


def test_without_a_terminal_nothing_is_asked(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("sys.stdin", io.StringIO())

    assert "root" in ask("n")


def test_a_user_without_root_is_not_asked_about_root(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert ask("n") == ""


def test_a_delegated_scope_is_used_where_systemd_offers_one(nothing):
    command = consent.delegated_command(nothing, ["--rounds", "2"], {})

    assert command is not None
    assert command[:3] == ["systemd-run", "--user", "--scope"]
    assert command[-2:] == ["--rounds", "2"]


def test_no_scope_is_asked_for_twice_nor_as_root(nothing):
    assert consent.delegated_command(nothing, [], {consent.DELEGATED_VARIABLE: "1"}) is None
    assert consent.delegated_command(dataclasses.replace(nothing, root=True), [], {}) is None


def test_fewer_means_are_named(nothing):
    lines = consent.means(nothing)

    assert lines[0].startswith("isolation here is reduced")
    assert any("SCHED_IDLE" in line for line in lines)
