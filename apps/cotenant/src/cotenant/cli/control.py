"""evict, drain, cordon, uncordon: what an operator decides about running pods and nodes."""

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli.objects import DryRun, Namespace
from cotenant.cli.output import Column, Format, Output, Progress, field, progress, show_data, show_table
from cotenant.cli.session import with_client
from cotenant.cli.values import duration_s
from cotenant.errors import ExitStatus, RefusedError

if TYPE_CHECKING:
    from cotenant.client import CotenantClient

NodeName = Annotated[str, typer.Argument(metavar="NODE")]
Message = Annotated[str | None, typer.Option(help="Why; goes into the event.")]

_PASS_S = 1.0


def register(app: typer.Typer) -> None:
    for command in (evict, drain, cordon, uncordon):
        app.command()(command)


def evict(
    pod: Annotated[str, typer.Argument(metavar="POD")],
    namespace: Namespace = "default",
    message: Message = None,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Ask the eviction gate to remove a pod within its disruption budget; a successor is queued."""

    async def ask(client: "CotenantClient") -> dict[str, Any]:
        return await client.evict(pod, namespace, message=message, dry_run=dry_run)

    try:
        reply = with_client(ask)
    except RefusedError as error:
        if output in (Format.JSON, Format.YAML):
            show_data(dict(error.details), output)
        reason = error.details.get("reason")
        raise RefusedError(f"pod/{pod} stays: {reason}: {error}" if reason else str(error)) from error
    if output in (Format.JSON, Format.YAML):
        show_data(reply, output)
    else:
        print(f"pod/{pod} {'would be evicted' if dry_run else 'evicted'}: {reply.get('message') or 'granted'}")
    return int(ExitStatus.DONE)


_DRAIN_COLUMNS = (
    field("POD", "pod"),
    Column("ANSWER", lambda row: "leaves" if row["granted"] else row["reason"]),
    field("MESSAGE", "message"),
)


def drain(
    node: NodeName,
    timeout: Annotated[str, typer.Option(help="Give up after this time; what has left stays away.")] = "10m",
    grace: Annotated[str | None, typer.Option(help="Time each pod has to stop; default its own.")] = None,
    message: Message = None,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Cordon a node and empty it through the eviction gate, within budgets; status 5 when pods remain."""
    timeout_s = duration_s(timeout)
    grace_s = None if grace is None else round(duration_s(grace))

    async def run(client: "CotenantClient", shown: Progress) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while True:
            found = await client.drain(node, message=message, grace_s=grace_s, dry_run=dry_run)
            if dry_run or not found["remaining"] or time.monotonic() > deadline:
                return found
            shown.say(_drain_state(node, found))
            await asyncio.sleep(_PASS_S)

    with progress(f"draining {node}", quiet=output is Format.JSON) as shown:
        found = with_client(lambda client: run(client, shown))
    if output in (Format.JSON, Format.YAML):
        show_data(found, output)
    elif found["pods"]:
        show_table(found["pods"], _DRAIN_COLUMNS)
    else:
        print(f"node/{node} is empty and cordoned")
    refused = [row for row in found["pods"] if not row["granted"]]
    if dry_run:
        return int(ExitStatus.REFUSED if refused else ExitStatus.DONE)
    if found["remaining"]:
        raise RefusedError(f"{_drain_state(node, found)} after {timeout_s:g} s; the node stays cordoned")
    return int(ExitStatus.DONE)


def _drain_state(node: str, found: dict[str, Any]) -> str:
    refused = [row for row in found["pods"] if not row["granted"]]
    count = found["remaining"]
    text = f"node/{node}: {count} pod{' remains' if count == 1 else 's remain'}"
    return f"{text}; {refused[0]['pod']} stays: {refused[0]['reason']}: {refused[0]['message']}" if refused else text


def cordon(node: NodeName, dry_run: DryRun = False) -> int:
    """Keep new pods off a node; those that run stay."""

    async def ask(client: "CotenantClient") -> dict[str, Any]:
        return await client.cordon(node, dry_run=dry_run)

    return _tell_cordon(node, with_client(ask), "cordoned", dry_run=dry_run)


def uncordon(node: NodeName, dry_run: DryRun = False) -> int:
    """Let new pods onto a node again."""

    async def ask(client: "CotenantClient") -> dict[str, Any]:
        return await client.uncordon(node, dry_run=dry_run)

    return _tell_cordon(node, with_client(ask), "uncordoned", dry_run=dry_run)


def _tell_cordon(node: str, reply: dict[str, Any], word: str, *, dry_run: bool) -> int:
    if reply.get("action") == "unchanged":
        print(f"node/{node} {reply.get('message') or f'was {word} already'}")
    else:
        print(f"node/{node} {'would be ' if dry_run else ''}{word}")
    return int(ExitStatus.DONE)
