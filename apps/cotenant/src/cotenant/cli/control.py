"""evict, cordon, uncordon: what an operator decides about running pods and nodes."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli.objects import DryRun, Namespace
from cotenant.cli.output import Format, Output, show_data
from cotenant.cli.session import with_client

if TYPE_CHECKING:
    from cotenant.client import CotenantClient

NodeName = Annotated[str, typer.Argument(metavar="NODE")]


def register(app: typer.Typer) -> None:
    app.command()(evict)
    app.command()(cordon)
    app.command()(uncordon)


def evict(
    pod: Annotated[str, typer.Argument(metavar="POD")],
    namespace: Namespace = "default",
    message: Annotated[str | None, typer.Option(help="Why; goes into the event.")] = None,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Ask the eviction gate to remove a pod within its disruption budget; a successor is queued."""

    async def ask(client: "CotenantClient") -> dict[str, Any]:
        return await client.evict(pod, namespace, message=message, dry_run=dry_run)

    reply = with_client(ask)
    if output in (Format.JSON, Format.YAML):
        show_data(reply, output)
    else:
        print(f"pod/{pod} {'would be evicted' if dry_run else 'evicted'}: {reply.get('message') or 'granted'}")
    return 0


def cordon(node: NodeName, dry_run: DryRun = False) -> int:
    """Keep new pods off a node; those that run stay."""

    async def ask(client: "CotenantClient") -> dict[str, Any]:
        return await client.cordon(node, dry_run=dry_run)

    with_client(ask)
    print(f"node/{node} {'would be cordoned' if dry_run else 'cordoned'}")
    return 0


def uncordon(node: NodeName, dry_run: DryRun = False) -> int:
    """Let new pods onto a node again."""

    async def ask(client: "CotenantClient") -> dict[str, Any]:
        return await client.uncordon(node, dry_run=dry_run)

    with_client(ask)
    print(f"node/{node} {'would be uncordoned' if dry_run else 'uncordoned'}")
    return 0
