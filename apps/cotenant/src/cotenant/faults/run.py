"""Start a fleet, hurt it as drawn while a load runs, wait until it has settled, and say what is wrong then."""

import asyncio
import secrets
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import aiohttp

from cotenant.bench import rig
from cotenant.client import CotenantClient
from cotenant.errors import CotenantError
from cotenant.faults import checks
from cotenant.faults.fleet import Fleet
from cotenant.faults.load import Load
from cotenant.faults.plan import NATS, Fault, FaultKind, draw
from cotenant.stack.services import LEADERS

Say = Callable[[str], None]

_LOOK_S: Final = 0.2
_READY_S: Final = 90.0
_SETTLE_S: Final = 120.0


@dataclass(slots=True)
class Outcome:
    """``recovery_s`` by what was killed alone: until it took work again."""

    faults: int = 0
    violations: list[str] = field(default_factory=list)
    recovery_s: dict[str, list[float]] = field(default_factory=dict)
    actions: dict[str, int] = field(default_factory=dict)
    ended_alone: list[str] = field(default_factory=list)
    settled_s: float = 0.0


@asynccontextmanager
async def running_fleet(copies: int, root: Path | None = None) -> AsyncIterator[Fleet]:
    """A fleet in a directory and a cgroup of its own; both are gone afterwards, and every pod with them."""
    with tempfile.TemporaryDirectory(prefix="cotenant-faults-") as directory:
        home = root or Path(directory) / "home"
        fleet = Fleet(home, f"cotenant-{secrets.token_hex(3)}", copies)
        try:
            await fleet.start()
            yield fleet
        finally:
            await fleet.stop()
            await asyncio.to_thread(_clean, fleet)


def _clean(fleet: Fleet) -> None:
    from cotenant_agent.config import AgentSettings  # noqa: PLC0415 - the agent's code is not needed before
    from cotenant_agent.node import end_node  # noqa: PLC0415

    for node in fleet.nodes:
        settings = AgentSettings(node=node, state_dir=fleet.state_dir(node), cgroup_root=fleet.cgroup_root)
        asyncio.run(end_node(settings, 1_000))


def measure(faults: int, seed: int, copies: int, rounds: int, say: rig.Say, keep: Path | None = None) -> dict[str, Any]:
    """The bench command's body. ``keep`` is where the home stays after the run."""
    machine = rig.describe()
    outcome = asyncio.run(_measure(faults, seed, copies, rounds, say, keep))
    figures: dict[str, Any] = {"faults": outcome.faults, "violations": len(outcome.violations)}
    for name, values in sorted(outcome.recovery_s.items()):
        figures[f"recovery_{name}_p50_s"] = round(rig.percentile(values, 50), 2)
        figures[f"recovery_{name}_max_s"] = round(max(values), 2)
    figures |= {f"load_{name}": count for name, count in sorted(outcome.actions.items())}
    figures["settled_s"] = round(outcome.settled_s, 1)
    settings = {"faults": faults, "seed": seed, "copies": copies, "rounds": rounds}
    found = rig.result("faults", figures, machine, **settings)
    return found | {"violations": outcome.violations, "ended_alone": outcome.ended_alone}


async def _measure(faults: int, seed: int, copies: int, rounds: int, say: rig.Say, keep: Path | None) -> Outcome:
    async with running_fleet(copies, root=keep) as fleet:
        await wait_ready(fleet, say)
        recovery_s = await recoveries(fleet, rounds, say)
        outcome = await hurt(fleet, faults, seed, say)
    outcome.recovery_s = recovery_s
    return outcome


async def hurt(fleet: Fleet, faults: int, seed: int, say: Say) -> Outcome:
    """All of it, on a fleet that has been started."""
    outcome = Outcome()
    run = secrets.token_hex(4)
    plan = draw(faults, seed, list(fleet.members))
    async with clients(fleet) as found:
        load = Load(run, found, Random(seed))  # noqa: S311 - a schedule, not a secret
        watch = checks.Watch(run)
        await wait_ready(fleet, say)
        await load.prepare()
        looking = asyncio.create_task(_look(watch, load))
        working = asyncio.create_task(load.go_on())
        try:
            for at, fault in enumerate(plan):
                say(f"{at + 1} of {faults}: {fault}")
                await asyncio.sleep(fault.after_s)
                await _strike(fleet, fault, outcome)
                outcome.faults += 1
                if working.done():  # it ends by itself only when the gateway makes no sense
                    working.result()
            load.stopping = True
            await working
            await _settle(fleet, found[0], load, outcome, say)
        finally:
            looking.cancel()
            working.cancel()
            await asyncio.gather(looking, working, return_exceptions=True)
        outcome.violations += [*watch.violations, *await checks.evictions(found[0], load)]
        outcome.actions = load.actions
    return outcome


@asynccontextmanager
async def clients(fleet: Fleet) -> AsyncIterator[list[CotenantClient]]:
    found = [CotenantClient(url, fleet.token) for url in fleet.gateway_urls]
    try:
        yield found
    finally:
        for client in found:
            await client.close()


async def _look(watch: checks.Watch, load: Load) -> None:
    while True:
        watch.look(load)
        await asyncio.sleep(_LOOK_S)


async def _strike(fleet: Fleet, fault: Fault, outcome: Outcome) -> None:
    match fault.kind:
        case FaultKind.KILL:
            await _kill(fleet, fault)
        case FaultKind.PAUSE:
            fleet.signal(fault.member, signal.SIGSTOP)
            await asyncio.sleep(fault.lasts_s)
            fleet.signal(fault.member, signal.SIGCONT)
        case FaultKind.CUT:
            cable = fleet.members[fault.member].cable
            cable.pull()
            await asyncio.sleep(fault.lasts_s)
            cable.plug_in()
    outcome.ended_alone += await fleet.revive()


async def _kill(fleet: Fleet, fault: Fault) -> None:
    names = [fault.member, *([fault.at_once] if fault.at_once else [])]
    for name in names:
        fleet.kill(name)
    await asyncio.sleep(fault.lasts_s)
    # In the order of the draw: who comes first is chance, too.
    for name in names:
        await fleet.start_again(name)


async def _settle(fleet: Fleet, client: CotenantClient, load: Load, outcome: Outcome, say: Say) -> None:
    started = time.monotonic()
    await wait_ready(fleet, say)
    while True:
        outcome.ended_alone += await fleet.revive()
        problems = await checks.unsettled(fleet, client, load)
        outcome.settled_s = time.monotonic() - started
        if not problems or outcome.settled_s > _SETTLE_S:
            outcome.violations += problems
            return
        say(f"settling: {checks.summary(problems[:2])}")
        await asyncio.sleep(0.5)


async def wait_ready(fleet: Fleet, say: Say) -> None:
    """Until every process says that it is ready and every service has a leader. Raise CotenantError."""
    deadline = time.monotonic() + _READY_S
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session, clients(fleet) as found:
        while missing := [*await _unready(fleet, session), *await _leaderless(found)]:
            if time.monotonic() > deadline:
                raise CotenantError(f"not ready after {_READY_S:g} s: {'; '.join(missing)}")
            await fleet.revive()
            say(f"waiting for {missing[0]}")
            await asyncio.sleep(0.1)


async def _unready(fleet: Fleet, session: aiohttp.ClientSession) -> list[str]:
    missing = []
    for name, member in fleet.members.items():
        try:
            async with session.get(f"{member.health_url}/readyz") as response:
                if response.status != 200:
                    missing.append(f"{name}: {(await response.text())[:200]}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            missing.append(f"{name}: {error!r}")
    return missing


async def _leaderless(found: list[CotenantClient]) -> list[str]:
    try:
        states = [await client.status() for client in found]
    except CotenantError as error:
        return [f"gateway: {error}"]
    if not any(state["leader"] for state in states):
        return ["gateway: nobody leads"]
    leads = {row["service"] for row in states[0]["services"] if row["holder"] is not None}
    missing = [f"{name}: nobody leads" for name in LEADERS if name not in leads]
    return missing or ([] if states[0]["nodes"]["ready"] else ["no node is ready"])


async def recovery(fleet: Fleet, name: str) -> float:
    """Seconds from ``kill -9`` of one process, started again at once, until everything takes work again."""
    started = time.monotonic()
    fleet.kill(name)
    await fleet.start_again(name)
    await wait_ready(fleet, lambda _: None)
    return time.monotonic() - started


async def recoveries(fleet: Fleet, rounds: int, say: Say) -> dict[str, list[float]]:
    """Of each service, the agent and nats-server, alone and on a fleet at rest."""
    found: dict[str, list[float]] = {}
    for at in range(rounds):
        for name in [*(f"{service}-0" for service in LEADERS), "agent-0", NATS]:
            say(f"round {at + 1}: killing {name}")
            short = name if name == NATS else name.rpartition("-")[0]
            found.setdefault(short, []).append(await recovery(fleet, name))
    return found
