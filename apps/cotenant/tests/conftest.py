from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cotenant.cli.main import main
from cotenant.testing import TOKEN, FakeGateway, serving


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with serving(FakeGateway()) as found:
        yield found


@dataclass
class Done:
    status: int
    out: str
    err: str


Cli = Callable[..., Done]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run the command line with a home of its own."""
    monkeypatch.setenv("COTENANT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COTENANT_URL", raising=False)

    def run(*arguments: str) -> Done:
        status = main(list(arguments))
        captured = capsys.readouterr()
        return Done(status, captured.out, captured.err)

    return run


@pytest.fixture
def ask(cli: Cli, gateway: FakeGateway, tmp_path: Path) -> Cli:
    """Run the command line against the fake gateway."""
    token = tmp_path / "token"
    token.write_text(TOKEN)

    def run(*arguments: str) -> Done:
        return cli("--url", gateway.url, "--token-file", str(token), *arguments)

    return run
