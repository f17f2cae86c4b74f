"""freeze, unfreeze, observe: holding the system back, everywhere at once or on one node."""

import getpass
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli import output as out
from cotenant.cli import session
from cotenant.cli.objects import DryRun
from cotenant.cli.output import Column, Format, Output, field, show_data, show_table
from cotenant.cli.session import with_client
from cotenant.errors import BadInputError, ExitStatus

if TYPE_CHECKING:
    from cotenant.client import CotenantClient
    from cotenant_agent.adapters.freeze_file import FreezeFile

NodeLocal = Annotated[
    bool, typer.Option("--node-local", help="Only this node's agent, by a file: works with everything else down.")
]


def register(app: typer.Typer) -> None:
    for command in (freeze, unfreeze, observe):
        app.command()(command)


def freeze(
    reason: Annotated[str, typer.Option(help="Why; every refused eviction repeats it.")],
    node_local: NodeLocal = False,
    dry_run: DryRun = False,
) -> int:
    """Stop every eviction and every tightening, everywhere at once, until unfreeze."""
    if not reason.strip() or not reason.isprintable():
        raise BadInputError(f"--reason: expected a printable sentence, got {reason!r}")
    if node_local:
        if not dry_run:
            _local("freeze").write(reason, _who(), time.time_ns() // 1_000_000)
        print(f"this node {'would be' if dry_run else 'is'} frozen: {reason}")
        return int(ExitStatus.DONE)

    async def ask(client: "CotenantClient") -> dict[str, Any]:
        return await client.freeze(reason, by=_who(), dry_run=dry_run)

    with_client(ask)
    print(f"{'would be frozen' if dry_run else 'frozen'}: {reason}")
    return int(ExitStatus.DONE)


def unfreeze(node_local: NodeLocal = False, dry_run: DryRun = False) -> int:
    """End a freeze."""
    if node_local:
        file = _local("unfreeze")
        was = file.reason() is not None if dry_run else file.clear()
        print(f"this node {'would be' if dry_run else 'is'} unfrozen" if was else "this node was not frozen by hand")
        return int(ExitStatus.DONE)

    async def ask(client: "CotenantClient") -> dict[str, Any]:
        return await client.unfreeze(by=_who(), dry_run=dry_run)

    reply = with_client(ask)
    if reply["action"] == "unchanged":
        print(reply["message"])
    else:
        print("would be unfrozen" if dry_run else "unfrozen")
    return int(ExitStatus.DONE)


def _local(what: str) -> "FreezeFile":
    """Raise BadInputError where no agent of ours keeps its state."""
    from cotenant_agent.adapters.freeze_file import local_freeze  # noqa: PLC0415

    state = session.home().agent
    if not state.is_dir():
        raise BadInputError(f"{what} --node-local: no agent keeps its state in {state}; say --home")
    return local_freeze(state)


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a user id without a name
        return f"unknown@{socket.gethostname()}"


def observe(
    node: Annotated[list[str] | None, typer.Option("--node", help="Only look at this node; repeatable.")] = None,
    namespace: Annotated[
        list[str] | None, typer.Option("-n", "--namespace", help="Evict no pod of this namespace; repeatable.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Only look, everywhere.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Act again on what is named.")] = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Only look at what is named; without names, report what would be reclaimed, capped and evicted."""
    named = bool(node or namespace or everything)
    if everything and (node or namespace):
        raise BadInputError("--all already holds every node and namespace; name either")
    if not named:
        if stop:
            raise BadInputError("--stop: say of what: --node, --namespace or --all")
        return _report(output)

    async def ask(client: "CotenantClient") -> dict[str, Any]:
        return await client.observe(nodes=node or (), namespaces=namespace or (), stop=stop, dry_run=dry_run)

    reply = with_client(ask)
    if output in (Format.JSON, Format.YAML):
        show_data(reply, output)
    else:
        print(f"{'(dry run) ' if dry_run else ''}{reply['action']}" + _after_colon(reply.get("message")))
    return int(ExitStatus.DONE)


def _after_colon(text: str | None) -> str:
    return f": {text}" if text else ""


_NODE_COLUMNS = (
    field("NODE", "node"),
    field("OBSERVED", "observed"),
    Column("RECLAIMABLE", lambda row: out.resources((row["reclaimable"] or {}).get("batch"))),
    Column("CAP-WOULD-BE", lambda row: out.cpu((row["cap"] or {}).get("would_be_milli"))),
    Column("CAP-IS", lambda row: out.cpu((row["cap"] or {}).get("is_milli"))),
    Column("BE-USES", lambda row: out.cpu((row["cap"] or {}).get("used_milli"))),
    Column("WOULD-EVICT", lambda row: len(row["would_evict"])),
)


def _report(output: Format) -> int:
    async def ask(client: "CotenantClient") -> dict[str, Any]:
        return await client.observed()

    found = with_client(ask)
    if output in (Format.JSON, Format.YAML):
        show_data(found, output)
        return int(ExitStatus.DONE)
    print(f"only observed: {_scope(found['scope'])}")
    show_table(found["nodes"], _NODE_COLUMNS)
    for row in found["nodes"]:
        for line in _sums(row):
            print(f"  {row['node']}: {line}")
    for one in found["evictions"]:
        print(f"  not evicted: {', '.join(one['pods'])}: {one['message']}")
    return int(ExitStatus.DONE)


def _scope(scope: Mapping[str, Any]) -> str:
    parts = ["everything"] if scope["everything"] else []
    parts += [f"node {name}" for name in scope["nodes"]] + [f"namespace {name}" for name in scope["namespaces"]]
    return ", ".join(parts) or "nothing"


def _sums(row: Mapping[str, Any]) -> list[str]:
    """The sentence behind each number."""
    reclaimable, cap = row["reclaimable"] or {}, row["cap"] or {}
    lines = [term["message"] for term in reclaimable.get("sums", ())] or [reclaimable.get("message")]
    return [line for line in (*lines, cap.get("message"), *row["would_evict"]) if line]


def freeze_line(status: Mapping[str, Any]) -> str | None:
    """What ``status`` says of a freeze or an observation in force."""
    freeze_data, observing = status.get("freeze"), status.get("observing")
    parts = []
    if freeze_data is not None:
        since = freeze_data.get("since_ms")
        age = f", {out.age(int(since))} ago" if since and since.isdigit() else ""
        parts.append(f"FROZEN by {freeze_data.get('by', 'somebody')}{age}: {status.get('frozen')}")
    if observing:
        parts.append("only observing " + "; ".join(f"{key} {value}" for key, value in observing.items()))
    return ". ".join(parts) or None
