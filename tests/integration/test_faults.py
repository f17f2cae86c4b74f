"""Real processes, killed and cut off; afterwards every pod is where it should be and every ledger is the truth."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from cotenant.faults import checks
from cotenant.faults.fleet import Fleet
from cotenant.faults.load import QUOTA_MANIFEST, Load, pod_manifest
from cotenant.faults.plan import NATS
from cotenant.faults.processes import pod_processes
from cotenant.faults.run import clients, hurt, running_fleet, wait_ready
from cotenant.testing import quiet

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="the agent needs Linux"),
]
PATIENCE_S = 120.0


async def settled(fleet: Fleet, load: Load) -> None:
    """Until nothing is wrong any more; what still is after two minutes fails the test."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while problems := await checks.unsettled(fleet, load.clients[0], load):
        assert asyncio.get_running_loop().time() < deadline, problems
        await fleet.revive()
        await asyncio.sleep(0.3)


def pids(load: Load) -> dict[str, list[int]]:
    return {name: [process.pid for process in found] for name, found in sorted(pod_processes(load.run).items())}


@asynccontextmanager
async def loaded(fleet: Fleet, run: str, pods: int = 3) -> AsyncIterator[Load]:
    async with clients(fleet) as found:
        load = Load(run, found, Random(1))
        await wait_ready(fleet, quiet)
        await load.prepare()
        for _ in range(pods):
            await load.submit()
        await settled(fleet, load)
        yield load


async def lose_store(fleet: Fleet) -> None:
    fleet.kill(NATS)
    await fleet.nats.child.process.wait()
    shutil.rmtree(fleet.home.nats)
    fleet.home.nats.mkdir()
    await fleet.start_again(NATS)


@pytest.mark.timeout(600)
async def test_random_faults_leave_nothing_wrong() -> None:
    async with running_fleet(copies=1) as fleet:
        outcome = await hurt(fleet, faults=6, seed=3, say=quiet)
        assert outcome.violations == []
        assert outcome.faults == 6
        assert outcome.actions["submit"] > 0


@pytest.mark.timeout(600)
async def test_a_second_copy_takes_over_while_the_first_one_stays_dead() -> None:
    async with running_fleet(copies=2) as fleet, loaded(fleet, "standby") as load:
        before = pids(load)
        leaders = [name for name in fleet.members if name.endswith("-0") and not name.startswith("agent")]
        for name in leaders:
            fleet.kill(name)
        load.clients = load.clients[1:]
        await load.submit()
        await settled(fleet, load)
        assert {name: found for name, found in pids(load).items() if name in before} == before
        for name in leaders:
            await fleet.start_again(name)
        await wait_ready(fleet, quiet)
        await settled(fleet, load)


@pytest.mark.timeout(600)
async def test_cut_off_full_and_lost_the_server_costs_no_workload(small_disk: Path | None) -> None:
    root = None if small_disk is None else small_disk / "home"
    async with running_fleet(copies=1, root=root) as fleet, loaded(fleet, "server") as load:
        before = pids(load)
        await a_client_that_was_cut_off_comes_back_by_itself(fleet, load)
        if small_disk is not None:
            await a_full_disk_stops_writes_and_nothing_else(small_disk, fleet, load)
        await a_lost_store_is_filled_again(fleet, load, services_die=False)
        await a_lost_store_is_filled_again(fleet, load, services_die=True)
        assert {name: found for name, found in pids(load).items() if name in before} == before


async def a_client_that_was_cut_off_comes_back_by_itself(fleet: Fleet, load: Load) -> None:
    processes = {name: member.pid for name, member in fleet.members.items()}
    for member in fleet.members.values():
        member.cable.pull()
    await asyncio.sleep(1.0)
    for member in fleet.members.values():
        member.cable.plug_in()
    await load.submit()
    await settled(fleet, load)
    assert {name: member.pid for name, member in fleet.members.items()} == processes


async def a_full_disk_stops_writes_and_nothing_else(disk: Path, fleet: Fleet, load: Load) -> None:
    before = pids(load)
    fill(disk)
    submitting = asyncio.create_task(load.submit())
    await asyncio.sleep(2.0)
    assert pids(load) == before
    for file in disk.glob("filler*"):
        file.unlink()
    # nats-server closes a stream that it could not write to until it is started again.
    fleet.kill(NATS)
    await fleet.start_again(NATS)
    await submitting
    await settled(fleet, load)
    assert {name: found for name, found in pids(load).items() if name in before} == before


def fill(disk: Path) -> None:
    """Most of it at a stroke, the last pages one by one: the server must not find a single one."""
    free = shutil.disk_usage(disk).free
    subprocess.run(["fallocate", "-l", str(free), str(disk / "filler")], check=False, capture_output=True)
    with (disk / "filler-rest").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


async def a_lost_store_is_filled_again(fleet: Fleet, load: Load, *, services_die: bool) -> None:
    await settled(fleet, load)
    before = pids(load)
    uids = {pod["name"]: pod["uid"] for pod in await load.clients[0].pods()}
    if services_die:
        for name in fleet.members:
            fleet.kill(name)
    await lose_store(fleet)
    for name, member in fleet.members.items():
        if not member.up:
            await fleet.start_again(name)
    await wait_ready(fleet, quiet)
    await _applied(load, QUOTA_MANIFEST)
    await settled(fleet, load)
    for name in load.wanted:
        await _applied(load, pod_manifest(load.run, name))
    await settled(fleet, load)
    assert pids(load) == before
    assert {pod["name"]: pod["uid"] for pod in await load.clients[0].pods()} == uids
    await load.submit()
    await settled(fleet, load)


async def _applied(load: Load, manifest: dict) -> None:
    await load._until_done(lambda client: client.apply(manifest))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """Room for what JetStream wants to reserve, in a file that stays sparse; None where nothing can be mounted."""
    if os.getuid() != 0 or shutil.which("mkfs.ext4") is None:
        yield None
        return
    image, mount = tmp_path / "disk", tmp_path / "mnt"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(3 << 30)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    if subprocess.run(["mount", "-o", "loop", str(image), str(mount)], capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)
