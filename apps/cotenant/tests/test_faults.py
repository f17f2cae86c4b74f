"""The parts of the fault run that need no processes: the draw, the cable, and what counts as wrong."""

import asyncio
import os
import subprocess
import sys
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cotenant.faults import checks
from cotenant.faults.load import CPU_MILLI, MEMORY_BYTES, Load, evictions_by_command, pod_manifest
from cotenant.faults.plan import NATS, FaultKind, draw
from cotenant.faults.processes import MARK, PodProcess, pod_processes
from cotenant.faults.proxy import Cable
from cotenant.stack import ports

MEMBERS = ["gateway-0", "scheduler-0", "agent-0"]


@given(st.integers(0, 50), st.integers())
def test_one_seed_draws_one_schedule(count: int, seed: int) -> None:
    assert draw(count, seed, MEMBERS) == draw(count, seed, MEMBERS)
    assert len(draw(count, seed, MEMBERS)) == count


def test_every_kind_of_fault_hits_every_kind_of_member() -> None:
    faults = draw(400, 1, MEMBERS)
    assert {fault.kind for fault in faults} == set(FaultKind)
    assert {fault.member for fault in faults} == {*MEMBERS, NATS}
    assert all(fault.member != NATS for fault in faults if fault.kind is not FaultKind.KILL)
    assert all(fault.at_once != fault.member for fault in faults)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
        await writer.drain()
    writer.close()


async def test_a_pulled_cable_breaks_what_is_open_and_takes_nothing_new() -> None:
    server = await asyncio.start_server(echo, ports.LOOPBACK, 0)
    cable = Cable(ports.choose("test", None, None), server.sockets[0].getsockname()[1])
    await cable.start()
    try:
        reader, writer = await asyncio.open_connection(ports.LOOPBACK, cable.port)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        cable.pull()
        assert await _ends(reader)
        writer.close()
        late, late_writer = await asyncio.open_connection(ports.LOOPBACK, cable.port)
        assert await _ends(late)
        late_writer.close()
        cable.plug_in()
        again, again_writer = await asyncio.open_connection(ports.LOOPBACK, cable.port)
        again_writer.write(b"again")
        assert await again.readexactly(5) == b"again"
        again_writer.close()
    finally:
        await cable.stop()
        server.close()


async def _ends(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(5):
        try:
            return await reader.read(1) == b""
        except ConnectionError:
            return True


def load(*wanted: str, removed: tuple[str, ...] = ()) -> Load:
    return Load("run", (), Random(1), dict.fromkeys(wanted), dict.fromkeys(removed))


def pod(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "uid": f"u-{name}", "node": "n1", "phase": "Running", "ready": True, **fields}


def test_lost_waiting_and_undead_pods_are_violations() -> None:
    known = {"b": pod("b", phase="Pending"), "c": pod("c")}
    found = checks._pods(load("a", "b", removed=("c",)), known)
    assert [problem.split(":")[0] for problem in found] == [
        "pod a is lost", "pod b is Pending", "pod c was deleted and is Running",
    ]  # fmt: skip
    assert checks._pods(load("c"), known) == []


def test_a_quota_has_to_be_charged_with_exactly_what_runs() -> None:
    used = {"cpu": 2 * CPU_MILLI, "memory": 2 * MEMORY_BYTES}
    assert checks._quota(load("a", "b"), {"used": used}) == []
    assert checks._quota(load("a"), {"used": used}) != []
    assert checks._quota(load(), None) != []


def test_a_second_process_and_a_new_one_that_nobody_asked_for_are_seen(monkeypatch) -> None:
    watch, asked = checks.Watch("run"), load("a", "b")
    asked.evicted["c1"] = "b"
    first, second = PodProcess(1, 10, ""), PodProcess(2, 20, "")
    for seen in ({"a": [first], "b": [first]}, {"a": [first, second], "b": [second]}, {"a": [second]}):
        monkeypatch.setattr(checks, "pod_processes", lambda _, found=seen: found)
        watch.look(asked)
    assert list(watch.violations) == [
        "pod a runs 2 times at once", "pod a was started again, though nobody evicted it",
    ]  # fmt: skip


def test_removals_are_counted_by_command() -> None:
    events = [
        {"type": "pod.evicted", "data": {"command_id": "c1"}},
        {"type": "pod.evicted", "data": {"command_id": "c1"}},
        {"type": "pod.bound", "data": {"command_id": "c1"}},
        {"type": "pod.evicted", "data": {}},
    ]
    assert evictions_by_command(events) == {"c1": 2}


def test_a_workload_is_found_by_the_mark_in_its_environment() -> None:
    name = f"run{os.getpid()}"
    (mark,) = [entry for entry in pod_manifest(name, "p1")["spec"]["containers"][0]["env"] if entry["name"] == MARK]
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, env={MARK: mark["value"]}, stdin=subprocess.PIPE) as child:
        found = pod_processes(name)
        child.communicate(b"\n")
    assert [process.pid for process in found["p1"]] == [child.pid]
