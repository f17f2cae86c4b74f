"""A whole stack in which every service has a login of its own: a pod runs, and nothing that anybody does is refused."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from cotenant.client import CotenantClient
from cotenant.stack import control
from cotenant.stack.home import StackHome, StackRecord
from cotenant.stack.options import StackOptions
from cotenant.testing import quiet
from cotenant.workload import CommandSpec, manifest
from cotenant_common.bus.login import Login
from cotenant_common.bus.nats_bus import connect
from cotenant_common.bus.protocol import AccessDeniedError, PermissionDeniedError
from cotenant_common.contracts.buckets import BINDINGS
from cotenant_common.model.qos import PriorityBand

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="the agent needs Linux"),
]


async def use(home: StackHome, record: StackRecord) -> None:
    """A pod from submit to its log, and the questions that services ask each other."""
    async with CotenantClient(record.gateway_url, home.api_token.read_text().strip()) as client:
        spec = CommandSpec(("/bin/sh", "-c", "echo hello; exec sleep 300"), "a", band=PriorityBand.FREE)
        await client.apply(manifest(spec))
        await client.wait_pod("a", timeout_s=60)
        async with asyncio.timeout(30):
            while "hello" not in "".join([piece async for piece in client.logs("a")]):
                await asyncio.sleep(0.1)
        await client.explain("a")
        events = [event["type"] async for event in client.events(since="1h", follow=False)]
    assert {"pod.bound", "pod.started", "node.registered"} <= set(events)


async def try_what_is_not_theirs(home: StackHome, record: StackRecord) -> None:
    user = f"agent-{record.node.replace('.', '_')}"
    with pytest.raises(AccessDeniedError):
        await connect([record.nats_url], name="guess", login=Login(user=user, password=SecretStr("guess")))
    with pytest.raises(AccessDeniedError):
        await connect([record.nats_url], name="nobody")
    password = SecretStr(home.bus_secret(user).read_text().strip())
    bus = await connect([record.nats_url], name="agent", login=Login(user=user, password=password))
    bindings = await bus.bucket(BINDINGS)
    with pytest.raises(PermissionDeniedError):
        await bindings.put(f"u1.{record.node}", b"x")
    await bus.close()


def command_lines(record: StackRecord) -> str:
    processes = [record.process, record.nats, *(service.process for service in record.services)]
    paths = [Path(f"/proc/{process.pid}/{name}") for process in processes if process for name in ("cmdline", "comm")]
    environments = [Path(f"/proc/{process.pid}/environ") for process in processes if process]
    return "".join(path.read_text(errors="replace") for path in (*paths, *environments))


@pytest.mark.parametrize("processes", [False, True])
def test_a_stack_works_with_a_login_per_service(home: StackHome, tmp_path: Path, *, processes: bool) -> None:
    options = StackOptions(home=home.root, processes=processes, bus_users=True).checked()
    record = control.start_detached(options, 90.0, quiet)
    asyncio.run(use(home, record))
    logs = "".join(path.read_text(errors="replace") for path in home.logs.glob("*.log"))
    refused = [line for line in logs.splitlines() if "bus_permission_denied" in line]
    # An agent that is there before the services asks for buckets that it may not make, and waits for them.
    assert [line for line in refused if "service=agent" not in line or "stream.create" not in line] == []
    secrets = [path.read_text().strip() for path in home.bus.glob("*.secret")]
    assert len(secrets) == 8
    shown = logs + command_lines(record) + home.record.read_text()
    assert not [secret for secret in secrets if secret in shown]
    assert {path.stat().st_mode & 0o777 for path in home.bus.iterdir()} == {0o600}
    asyncio.run(try_what_is_not_theirs(home, record))
    saved = subprocess.run(
        [Path(sys.executable).with_name("cotenant"), "backup", str(tmp_path / "saved")],
        env={**os.environ, "COTENANT_HOME": str(home.root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert saved.returncode == 0, saved.stderr
