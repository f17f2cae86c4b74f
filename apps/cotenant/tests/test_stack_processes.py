"""Children of a stack, with small real processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cotenant.stack.home import ProcessRef, StackHome, StackRecord
from cotenant.stack.nats import NatsChild, jetstream_answers, prepare_nats, render_config
from cotenant.stack.ports import choose
from cotenant.stack.processes import Child, end_stray, end_strays

pytestmark = pytest.mark.integration


def sleeper(tmp_path: Path, code: str = "import time; time.sleep(60)") -> Child:
    return Child("sleeper", [sys.executable, "-c", code], tmp_path / "log", dict(os.environ))


async def until(check) -> None:
    async with asyncio.timeout(10):
        while not check():
            await asyncio.sleep(0.01)


async def test_a_child_that_dies_is_started_again(tmp_path: Path) -> None:
    child = sleeper(tmp_path)
    await child.start()
    first = child.reference
    assert first is not None
    restarted = asyncio.Event()

    async def on_start() -> None:
        restarted.set()

    watch = asyncio.create_task(child.supervise(on_start))
    os.kill(first.pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        await restarted.wait()
    assert child.last_exit == -signal.SIGKILL
    assert child.reference != first
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    await child.stop(5)
    assert child.reference is not None
    assert not child.reference.is_alive()


async def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    child = sleeper(tmp_path, code)
    await child.start()
    await until(lambda: child.log.read_text() == "up\n")
    await child.stop(0.1)
    assert child.reference is not None
    assert not child.reference.is_alive()


def test_a_stray_is_ended(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert end_stray(ProcessRef.of(process.pid), 5, time.sleep)
    process.wait()
    assert not end_stray(ProcessRef.of(process.pid), 5, time.sleep)
    assert not end_stray(None, 5, time.sleep)


def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = f"""
import asyncio, os, sys
from pathlib import Path
from cotenant.stack.processes import Child

async def main():
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    child = Child("c", command, Path({str(tmp_path)!r}) / "log", dict(os.environ))
    await child.start()
    print(child.reference.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = ProcessRef.of(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while child is not None and child.is_alive():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def server(tmp_path: Path) -> NatsChild:
    home = StackHome(tmp_path / "home")
    home.create()
    return prepare_nats(home, choose("nats-server", None, None))


async def test_the_server_answers_only_with_the_token(server: NatsChild) -> None:
    await server.start()
    try:
        assert await jetstream_answers(server.port, server.home.token(server.home.nats_token))
        assert not await jetstream_answers(server.port, "guess")
    finally:
        await server.stop()
    assert not await jetstream_answers(server.port, "guess")


async def test_a_server_left_by_a_killed_stack_is_ended_first(server: NatsChild) -> None:
    await server.start()
    old = server.child.reference
    assert old is not None
    assert server.child.process is not None
    record = StackRecord(old, "one process", "n", "", server.url, 0, "0", "g", nats=old)
    ending = asyncio.create_task(asyncio.to_thread(end_strays, record))
    await server.child.process.wait()
    assert await ending == 1
    again = prepare_nats(server.home, server.port)
    await again.start()
    await again.stop()
    assert end_strays(None) == 0


def test_secrets_are_quoted_and_only_loopback_is_opened(tmp_path: Path) -> None:
    text = render_config(StackHome(tmp_path), 4222, 'a"b')
    assert 'token: "a\\"b"' in text
    assert 'listen: "127.0.0.1:4222"' in text
