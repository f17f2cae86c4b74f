"""hollow: a fleet of nodes that are only their agents' messages, to load a control plane with."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cotenant.cli import session
from cotenant.cli.operations import TokenFile, open_bus
from cotenant.cli.output import progress
from cotenant.cli.values import duration_ms
from cotenant.errors import BadInputError, CotenantError, ExitStatus, NoConnectionError, NotFoundError

if TYPE_CHECKING:
    from cotenant.hollow.fleet import HollowFleet
    from cotenant.hollow.plan import FleetPlan
    from cotenant_common.bus.protocol import Bus

Say = Callable[[str], None]
Server = Annotated[
    list[str] | None,
    typer.Option(
        "--nats-server", "--url", help="Server to join; default $COTENANT_NATS_SERVERS, else the local stack's."
    ),
]
_LEAVE_S: Final = 120.0
_TOGETHER: Final = 16


def register(app: typer.Typer) -> None:
    app.command()(hollow)


def hollow(  # noqa: PLR0913, PLR0917 - one parameter per option
    nodes: Annotated[int, typer.Option(min=1, max=20_000, help="How many.")] = 100,
    cpu: Annotated[str, typer.Option(help="Of each, as a quantity.")] = "32",
    memory: Annotated[str, typer.Option(help="Of each, as a quantity.")] = "128Gi",
    pods_per_node: Annotated[int, typer.Option(min=1, help="Room for so many pods on each.")] = 110,
    rate: Annotated[float, typer.Option(min=0.1, help="Nodes that register per second.")] = 100.0,
    prefix: Annotated[str, typer.Option(help="Nodes are named PREFIX-00000 and so on.")] = "hollow",
    lasts: Annotated[str | None, typer.Option("--for", help="End by itself after so long, such as 90s or 1h.")] = None,
    nats_server: Server = None,
    nats_token_file: TokenFile = None,
) -> int:
    """Simulated agents on a real bus: they register, beat, report, and answer bindings and deletions. Ctrl-C ends it.

    Pods that are bound there start after a second and end after their `cotenant.io/sim-duration`; nothing runs.
    """
    plan = _plan(nodes, cpu, memory, pods_per_node, rate, prefix)
    lasts_s = None if lasts is None else duration_ms("--for", lasts) / 1_000
    with progress(f"{nodes} hollow nodes") as shown:
        left = asyncio.run(_fleet(plan, lasts_s, nats_server, nats_token_file, shown.say))
    print(left)
    return int(ExitStatus.DONE)


def _plan(nodes: int, cpu: str, memory: str, pods_per_node: int, rate: float, prefix: str) -> "FleetPlan":
    from cotenant.hollow.plan import FleetError, FleetPlan  # noqa: PLC0415
    from cotenant_common.model import quantity  # noqa: PLC0415

    try:
        cpu_milli, memory_bytes = quantity.cpu_milli(cpu), quantity.whole(memory)
        if not cpu_milli or not memory_bytes:
            raise BadInputError("--cpu and --memory: expected more than nothing")
        return FleetPlan(nodes, cpu_milli, memory_bytes, pods_per_node, rate, prefix)
    except quantity.QuantityError as error:
        raise BadInputError(f"--cpu or --memory: {error}") from error
    except FleetError as error:
        raise BadInputError(f"--{error}") from error


async def _fleet(
    plan: "FleetPlan", lasts_s: float | None, servers: list[str] | None, token_file: Path | None, say: Say
) -> str:
    from cotenant_common.bus.protocol import BusError  # noqa: PLC0415

    async with open_bus("hollow", servers, token_file) as (bus, _):
        try:
            fleet = _make(bus, plan)
            await _drive(fleet, plan, lasts_s, say)
            say("taking the nodes back")
            async with asyncio.timeout(_LEAVE_S):
                await fleet.leave()
                return await _delete_nodes(list(fleet.nodes))
        except (BusError, TimeoutError) as error:
            raise CotenantError(
                f"not everything was taken back ({error or 'out of time'}); start the fleet again and end it"
            ) from error


def _make(bus: "Bus", plan: "FleetPlan") -> "HollowFleet":
    from cotenant.hollow.fleet import HollowFleet  # noqa: PLC0415
    from cotenant_common.runtime.clock import SystemClock  # noqa: PLC0415
    from cotenant_common.runtime.health import Health  # noqa: PLC0415
    from cotenant_common.runtime.service import ServiceContext  # noqa: PLC0415
    from cotenant_common.telemetry.logging import get_logger  # noqa: PLC0415
    from cotenant_common.telemetry.metrics import null_metrics  # noqa: PLC0415

    clock = SystemClock()
    context = ServiceContext("agent", bus, clock, get_logger("hollow"), null_metrics(), Health(clock), plan.prefix)
    return HollowFleet(context, plan)


async def _drive(fleet: "HollowFleet", plan: "FleetPlan", lasts_s: float | None, say: Say) -> None:
    """Until a signal, the time or a fault ends it."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    running = loop.create_task(fleet.run(), name="fleet")
    waiting: asyncio.Task[Any] = loop.create_task(ended.wait(), name="signal")
    due = None if lasts_s is None else loop.time() + lasts_s
    try:
        while not running.done() and not ended.is_set() and (due is None or loop.time() < due):
            step_s = 1.0 if due is None else min(1.0, due - loop.time())
            await asyncio.wait([running, waiting], timeout=max(0.0, step_s), return_when=asyncio.FIRST_COMPLETED)
            say(f"{fleet.registered} of {plan.nodes} nodes registered, {fleet.pods_running} pods running")
        if running.done():
            running.result()
    finally:
        running.cancel()
        waiting.cancel()
        await asyncio.wait([running, waiting])


async def _delete_nodes(names: list[str]) -> str:
    """The gateway owns Node objects; one that cannot be reached finds silent nodes by itself within minutes."""
    try:
        base_url, token = session.address()
    except NoConnectionError:
        return f"{len(names)} nodes taken back; their Node objects stay until a gateway deletes them (cotenant delete)"
    from cotenant.client import CotenantClient  # noqa: PLC0415

    async with CotenantClient(base_url, token) as client:
        for start in range(0, len(names), _TOGETHER):
            await asyncio.gather(*(_delete(client, name) for name in names[start : start + _TOGETHER]))
    return f"{len(names)} nodes taken back"


async def _delete(client: Any, name: str) -> None:
    with suppress(NotFoundError):
        await client.delete("Node", name, None)
