"""Service, load generator and plain neighbours as real processes."""

import asyncio
import json
import os
import sys

import pytest

from cotenant.demo import measure, plan
from cotenant.demo.groups import ProcessGroups
from cotenant.demo.load import Load
from cotenant.demo.programs import Programs, User
from cotenant.stack import ports
from cotenant_agent.cgroup.files import Knob
from cotenant_agent.cgroup.layout import Layout, LayoutKind, detect_layout

pytestmark = pytest.mark.slow

ROOT = f"cotenant-test-demo-{os.getpid()}"


@pytest.fixture
def programs(examples, tmp_path):
    return Programs(examples, sys.executable, User(os.geteuid(), os.getegid(), "tests"), tmp_path)


@pytest.fixture
async def service(programs):
    port = ports.choose("the service", None, None)
    process = await asyncio.create_subprocess_exec(
        *programs.service_command(port, 2), "--service-ms", "0.2", stdout=asyncio.subprocess.PIPE
    )
    # The announcement comes when the parent holds the port; the workers' own sockets follow.
    said = (await process.stdout.readline()).decode()
    async with asyncio.timeout(20):
        while not await _answers(port):
            await asyncio.sleep(0.02)
    yield port, said
    process.terminate()
    await process.communicate()
    assert process.returncode == 0


async def _answers(port):
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        return b"200 OK" in await asyncio.wait_for(reader.readline(), 5)
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()


async def test_the_service_states_its_cost_and_answers_every_request_of_the_load(service, programs, tmp_path):
    port, said = service
    assert "ms of CPU a request" in said

    command = [sys.executable, programs.load, "--announce", "--url", f"http://127.0.0.1:{port}/", "--workers", "2"]
    command += ["--cores", "1", "--service-ms", "2", "--steps", "20:1,40:1", "--seed", "3"]
    load = await Load.start(command, programs.user, tmp_path / "samples.csv")
    try:
        found = await load.finish()
    finally:
        await load.stop()

    assert found.summary["planned"] == found.summary["samples"] == len(found.samples)
    assert all(sample.ok for sample in found.samples)
    assert found.summary["late_p99_ms"] is not None
    assert load.means


async def test_a_load_on_nobody_says_so_instead_of_hanging(programs, tmp_path):
    port = ports.choose("nobody", None, None)
    command = [sys.executable, programs.load, "--announce", "--url", f"http://127.0.0.1:{port}/"]
    with pytest.raises(Exception, match="is the service running"):
        await Load.start(command, programs.user, tmp_path / "samples.csv")


async def run_one(groups, programs):
    neighbour = plan.neighbours(2)[0]
    await groups.start(neighbour.name, programs.neighbour_command(neighbour, "t", 0, 30), programs, low=True)
    counter = programs.counter(neighbour, "t")
    async with asyncio.timeout(20):
        while measure.read_counter(counter).work.units == 0:
            await asyncio.sleep(0.02)
    pid = measure.read_counter(counter).pid
    assert pid == groups.processes[neighbour.name].pid
    return neighbour.name, pid


async def test_plain_neighbours_run_in_groups_of_their_own_and_leave_none(programs, tmp_path):
    layout = detect_layout()
    if layout.kind is LayoutKind.NONE:
        pytest.skip(f"no rights to groups: {layout.reason}")
    groups = ProcessGroups.open(layout, ROOT, tmp_path / "knobs.jsonl")
    groups.weigh(2, "test")
    try:
        assert groups.tree.read("", Knob.CPU_SHARES) == 2
        name, pid = await run_one(groups, programs)
        assert groups.tree.pids(name) == (pid,)
    finally:
        await groups.stop()
        cleaned = groups.clean_up()

    assert cleaned.differences == ()
    assert not groups.tree.exists("")


async def test_without_groups_neighbours_run_all_the_same(programs, tmp_path):
    groups = ProcessGroups.open(Layout(LayoutKind.NONE, "a test"), ROOT, tmp_path / "knobs.jsonl")
    groups.weigh(2, "test")
    try:
        _, pid = await run_one(groups, programs)
        assert os.getpriority(os.PRIO_PROCESS, pid) == 19
    finally:
        await groups.stop()

    assert groups.clean_up().differences == ()
    assert not measure.pids_of([programs.neighbour, str(tmp_path)])


def test_the_report_of_the_generator_is_one_line_of_json(poisson):
    samples = poisson.Samples()
    for column, value in (("intended_s", 0.1), ("latency_ms", 2.0), ("late_ms", 0.1), ("status", 200), ("step", 0)):
        getattr(samples, column).append(value)

    assert json.loads(json.dumps(samples.summary()))["p99_ms"] == 2.0
