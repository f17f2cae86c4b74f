"""A stack from inside: nats-server and all services, for as long as a block or a process runs."""

import asyncio
import gc
import math
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from cotenant.client import CotenantClient
from cotenant.errors import CotenantError, ExitStatus
from cotenant.stack import asking, services
from cotenant.stack.home import ProcessRef, StackHome, StackRecord, hold, load_record
from cotenant.stack.hosting import Hosting, InOneProcess, InProcesses
from cotenant.stack.nats import NatsChild, prepare_nats
from cotenant.stack.options import StackOptions
from cotenant.stack.processes import end_strays
from cotenant.stack.services import StackPlan
from cotenant_common.runtime.settings import CONFIG_VARIABLE
from cotenant_common.telemetry import logging
from cotenant_common.telemetry.logging import Logger

READY_TIMEOUT_S: Final = 60.0
_SETTLE_S: Final = 5.0
"""After this the imports and first snapshots are done, and what exists then mostly lives for ever."""


@dataclass(frozen=True, slots=True)
class Stack:
    home: StackHome
    plan: StackPlan
    client: CotenantClient
    hosting: Hosting

    async def wait_ready(self, timeout_s: float = READY_TIMEOUT_S, say: Callable[[str], None] = lambda _: None) -> None:
        """Raise CotenantError naming the services that are not ready in time and why."""
        deadline = time.monotonic() + timeout_s
        while True:
            states = await asyncio.to_thread(asking.ask_all, self.hosting.references())
            ready = all(state.ready for state in states)
            if ready and await asyncio.to_thread(asking.takes_work, self.plan.gateway_url, self.home):
                return
            waiting = asking.waiting_for(states)
            say(waiting)
            if time.monotonic() > deadline:
                raise CotenantError(f"not ready after {timeout_s:g} s: {waiting}")
            await asyncio.sleep(0.1)


@asynccontextmanager
async def embedded_stack(
    options: StackOptions, *, ready_timeout_s: float | None = READY_TIMEOUT_S
) -> AsyncIterator[Stack]:
    """Run a stack for the length of the block; None as the timeout does not wait for the services.

    Pods outlive the block: ``control.take_down`` ends them, the next stack of the same home adopts them.
    """
    options = options.checked()
    home = options.state
    home.create()
    with hold(home):
        await asyncio.to_thread(end_strays, load_record(home))
        plan = services.make_plan(options)
        nats = prepare_nats(home, plan.nats_port, node=plan.node if options.bus_users else None)
        log = logging.get_logger("stack")
        try:
            await nats.start()
            hosting = _hosting(plan, nats)
            _record(plan, nats, hosting).save(home)
            watch = asyncio.create_task(nats.child.supervise(_noting(plan, nats, hosting, log)), name="nats-server")
            try:
                await hosting.start()
                _record(plan, nats, hosting).save(home)
                async with CotenantClient(plan.gateway_url, home.token(home.api_token)) as client:
                    stack = Stack(home, plan, client, hosting)
                    if ready_timeout_s is not None:
                        await stack.wait_ready(ready_timeout_s)
                    yield stack
            finally:
                # Services first: they release leases and write their last states through the server.
                await hosting.stop()
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
        finally:
            await nats.stop()


def _hosting(plan: StackPlan, nats: NatsChild) -> Hosting:
    home = plan.options.state
    home.token(home.api_token)
    if not plan.options.processes:
        return InOneProcess(plan)
    hosting: Hosting = InProcesses(plan, lambda: _record(plan, nats, hosting).save(home))
    return hosting


def _noting(plan: StackPlan, nats: NatsChild, hosting: Hosting, log: Logger) -> Callable[[], Awaitable[None]]:
    async def note() -> None:
        log.warning("nats_server_restarted", exit_status=nats.child.last_exit, restarts=nats.child.restarts)
        _record(plan, nats, hosting).save(plan.options.state)

    return note


def _record(plan: StackPlan, nats: NatsChild, hosting: Hosting) -> StackRecord:
    own = ProcessRef.current()
    return StackRecord(
        process=own,
        mode="processes" if plan.options.processes else "one process",
        node=plan.node,
        gateway_url=plan.gateway_url,
        nats_url=plan.nats_url,
        started_ms=time.time_ns() // 1_000_000,
        version=version("cotenant"),
        cgroup_root=plan.cgroup_root,
        nats=nats.child.reference,
        services=hosting.references(),
        bus_user=nats.user,
    )


async def _run(options: StackOptions, say: Callable[[str], None]) -> ExitStatus:
    """Until a signal. Asked to end is done; Ctrl-C is an interruption, as for every command."""
    stop: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()
    for number, status in ((signal.SIGTERM, ExitStatus.DONE), (signal.SIGINT, ExitStatus.INTERRUPTED)):
        loop.add_signal_handler(number, _end_with, stop, status)
    async with embedded_stack(options, ready_timeout_s=None) as stack:
        settled = loop.call_later(_SETTLE_S, _freeze)
        telling = asyncio.create_task(_tell_ready(stack, say), name="ready")
        status = await stop
        telling.cancel()
        settled.cancel()
    return status


def _end_with(stop: "asyncio.Future[ExitStatus]", status: ExitStatus) -> None:
    if not stop.done():
        stop.set_result(status)


async def _tell_ready(stack: Stack, say: Callable[[str], None]) -> None:
    await stack.wait_ready(math.inf)
    say(f"cotenant is up: node {stack.plan.node}, gateway {stack.plan.gateway_url}, nats {stack.plan.nats_url}")


def _freeze() -> None:
    # What was imported never dies; without this every full collection walks it again.
    gc.collect()
    gc.freeze()


def main(options: StackOptions, say: Callable[[str], None] = lambda _: None) -> int:
    """Run until SIGTERM or SIGINT; ``say`` is told once when every service is ready. Return the exit status."""
    import uvloop  # noqa: PLC0415 - the simulator runs the same services under another loop

    logging.configure(options.log_level)
    # Each pod holds a handful of descriptors open for its life; the usual soft limit of 1,024 ends at 200 pods.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        return int(uvloop.run(_run(options, say)))
    except CotenantError as error:
        sys.stderr.write(f"cotenant: {error}\n")
        return int(error.exit_status)


def from_arguments(arguments: Sequence[str]) -> int:
    """``python -m cotenant.stack OPTIONS-AS-JSON``: what ``cotenant up`` starts in the background."""
    config = os.environ.get(CONFIG_VARIABLE)
    if config:
        os.environ[CONFIG_VARIABLE] = str(Path(config).absolute())
    # A daemon must not hold the directory it was started in.
    os.chdir("/")
    return main(StackOptions.from_json(arguments[0]))
