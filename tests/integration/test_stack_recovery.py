"""What a stack leaves behind when it is killed, and what it does not when it is taken down."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from cotenant.client import CotenantClient
from cotenant.stack import control
from cotenant.stack.home import StackHome, is_held, load_record, start_ticks
from cotenant.stack.options import StackOptions
from cotenant.stack.run import embedded_stack
from cotenant.testing import quiet
from cotenant.workload import CommandSpec, manifest
from cotenant_common.model.qos import PriorityBand

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="the agent needs Linux"),
]


def start(home: StackHome, *, processes: bool = False):
    return control.start_detached(StackOptions(home=home.root, processes=processes).checked(), 60.0, quiet)


async def run_pod(home: StackHome, name: str, mark: Path) -> int:
    """Start a pod that writes its pid; return the pid once the gateway shows it as running."""
    record = load_record(home)
    assert record is not None
    command = ("/bin/sh", "-c", f"echo $$ > {mark}; exec sleep 300")
    spec = CommandSpec(command, name, band=PriorityBand.FREE, user_id=os.getuid())
    async with CotenantClient(record.gateway_url, home.api_token.read_text().strip()) as client:
        await client.apply(manifest(spec))
        await client.wait_pod(name, timeout_s=30)
    return await pid_of(mark)


async def pid_of(mark: Path) -> int:
    async with asyncio.timeout(20):
        while not mark.exists() or not mark.read_text():
            await asyncio.sleep(0.01)
    return int(mark.read_text())


def groups_of(root: str) -> list[Path]:
    return [path for path in Path("/sys/fs/cgroup").glob(f"*/{root}") if path.is_dir()] + [
        path for path in [Path("/sys/fs/cgroup") / root] if path.is_dir()
    ]


def test_down_leaves_no_process_no_group_and_no_state(home: StackHome, tmp_path: Path) -> None:
    record = start(home)
    pid = asyncio.run(run_pod(home, "a", tmp_path / "pid"))
    report = control.take_down(home, keep_state=False, grace_s=5.0, say=quiet)
    assert report.clean
    assert report.pods == 1
    assert start_ticks(pid) is None
    assert not record.process.is_alive()
    assert record.nats is None or not record.nats.is_alive()
    assert groups_of(record.cgroup_root) == []
    assert not home.root.exists()


def test_kept_objects_start_afresh(home: StackHome, tmp_path: Path) -> None:
    first = start(home)
    pid = asyncio.run(run_pod(home, "a", tmp_path / "pid"))
    assert control.take_down(home, keep_state=True, grace_s=5.0, say=quiet).clean
    assert start_ticks(pid) is None
    assert groups_of(first.cgroup_root) == []
    (tmp_path / "pid").unlink()
    start(home)
    again = asyncio.run(pid_of(tmp_path / "pid"))
    assert again != pid
    assert start_ticks(again) is not None


def test_a_killed_stack_is_taken_over_by_the_next_up(home: StackHome, tmp_path: Path) -> None:
    first = start(home)
    pid = asyncio.run(run_pod(home, "a", tmp_path / "pid"))
    ticks = start_ticks(pid)
    os.kill(first.process.pid, signal.SIGKILL)
    while is_held(home):
        time.sleep(0.01)
    assert start_ticks(pid) == ticks
    second = start(home)
    assert second.gateway_url == first.gateway_url

    async def adopted() -> str:
        async with CotenantClient(second.gateway_url, home.api_token.read_text().strip()) as client:
            return str((await client.wait_pod("a", timeout_s=30))["phase"])

    assert asyncio.run(adopted()) == "Running"
    assert start_ticks(pid) == ticks


def test_down_cleans_up_after_a_killed_stack(home: StackHome, tmp_path: Path) -> None:
    record = start(home)
    pid = asyncio.run(run_pod(home, "a", tmp_path / "pid"))
    os.kill(record.process.pid, signal.SIGKILL)
    report = control.take_down(home, keep_state=False, grace_s=5.0, say=quiet)
    assert report.clean
    assert start_ticks(pid) is None
    assert groups_of(record.cgroup_root) == []
    assert not home.root.exists()


def test_one_process_per_service_restarts_the_one_that_dies(home: StackHome) -> None:
    record = start(home, processes=True)
    pids = {service.name: service.process.pid for service in record.services}
    assert len(set(pids.values())) == 6
    os.kill(pids["quota"], signal.SIGKILL)
    deadline = time.monotonic() + 30
    while True:
        found = control.inspect(home)
        now = {row["service"]: row["pid"] for row in found.rows}
        if found.ready and now["quota"] != pids["quota"]:
            break
        assert time.monotonic() < deadline, json.dumps(found.as_data())
        time.sleep(0.2)
    assert now | {"quota": 0, "nats-server": 0} == pids | {"quota": 0, "nats-server": 0}


async def test_a_stack_can_be_embedded(home: StackHome) -> None:
    async with embedded_stack(StackOptions(home=home.root)) as stack:
        (node,) = await stack.client.nodes()
        assert node["ready"]
    assert not is_held(home)
