"""``cotenant hollow``: what it refuses, and that it takes its nodes back."""

import asyncio
import sys

import pytest

from cotenant.cli.main import main
from cotenant_common.bus.nats_bus import connect
from cotenant_common.contracts import buckets
from cotenant_common.testing.nats_server import NatsServer, find_nats_server


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--for", "soon"], "--for: "),
        (["--cpu", "lots"], "--cpu or --memory: expected a quantity"),
        (["--cpu", "0"], "expected more than nothing"),
        (["--prefix", "My_Fleet"], "--prefix 'My_Fleet': expected lower-case letters"),
        (["--nats-server", "nats://127.0.0.1:1", "--nats-token-file", "/none"], "nats_token_file: cannot read /none"),
    ],
)
def test_bad_options_are_named(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hollow", *options]) == 3
    assert said in capsys.readouterr().err


@pytest.mark.skipif(find_nats_server() is None, reason="no nats-server here")
async def test_the_command_registers_its_nodes_and_takes_them_back(tmp_path) -> None:
    async with NatsServer() as server:
        bus = await connect([server.url], name="test")
        nodes = await bus.bucket(buckets.NODES)
        command = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "import sys; from cotenant.cli.main import main; sys.exit(main())",
            "--home", str(tmp_path / "home"), "hollow", "--nodes", "5", "--nats-server", server.url,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(60):
            while len(await nodes.keys()) < 5:
                await asyncio.sleep(0.1)
            command.terminate()
            out, err = await command.communicate()
        assert (command.returncode, await nodes.keys()) == (0, [])
        assert b"5 nodes taken back" in out, err
        await bus.close()
