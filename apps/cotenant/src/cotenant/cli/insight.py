"""top, explain, why-not, events, policy: what happens and why."""

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli import views
from cotenant.cli.control import NodeName
from cotenant.cli.objects import Namespace
from cotenant.cli.output import Format, Output, show, show_data
from cotenant.cli.session import with_client
from cotenant.errors import BadInputError, ExitStatus

if TYPE_CHECKING:
    from cotenant.client import CotenantClient


def register(app: typer.Typer) -> None:
    app.command()(top)
    app.command()(explain)
    app.command("why-not")(why_not)
    app.command()(events)
    app.command()(policy)


def top(
    what: Annotated[str, typer.Argument(metavar="nodes|pods|quotas")] = "nodes",
    output: Output = Format.TABLE,
) -> int:
    """Measured use beside what was requested and what batch may have."""
    plural = what if what.endswith("s") else what + "s"
    if plural not in views.TOP_COLUMNS:
        raise BadInputError(f"expected nodes, pods or quotas, got {what!r}")

    async def fetch(client: "CotenantClient") -> list[dict[str, Any]]:
        return await client.top(plural)

    show(with_client(fetch), views.TOP_COLUMNS[plural], output, empty=f"no {plural}")
    return int(ExitStatus.DONE)


def explain(
    pod: Annotated[str, typer.Argument(metavar="POD")],
    namespace: Namespace = "default",
    output: Output = Format.TABLE,
) -> int:
    """Why a pod is where it is, or why it waits and what would help."""
    name = pod.rpartition("/")[2]

    async def fetch(client: "CotenantClient") -> dict[str, Any]:
        return await client.explain(name, namespace)

    reply = with_client(fetch)
    if output in (Format.JSON, Format.YAML):
        show_data(reply, output)
    else:
        print("\n".join(views.explain_lines(name, reply)))
    return int(ExitStatus.DONE)


def why_not(
    node: NodeName,
    pod: Annotated[str, typer.Argument(metavar="POD")],
    namespace: Namespace = "default",
    output: Output = Format.TABLE,
) -> int:
    """Why a pod is not on a node; status 2 when it would not fit there."""
    name = pod.rpartition("/")[2]

    async def fetch(client: "CotenantClient") -> dict[str, Any]:
        return await client.why_not(node, name, namespace)

    reply = with_client(fetch)
    if output in (Format.JSON, Format.YAML):
        show_data(reply, output)
    else:
        print("\n".join(views.why_not_lines(node, name, reply)))
    return int(ExitStatus.DONE if reply.get("fits") else ExitStatus.DOES_NOT_FIT)


def events(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as events happen.")] = False,
    since: Annotated[str | None, typer.Option(help="A time span such as 10m, or a sequence number.")] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only these types, e.g. pod.evicted; repeatable.")
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """What happened, in order; -o json prints one event per line."""
    types = _types(type_ or ())
    start = since or (None if follow else "1h")

    async def copy(client: "CotenantClient") -> None:
        async for event in client.events(follow=follow, since=start, types=types):
            print(json.dumps(event) if output is Format.JSON else views.event_line(event), flush=True)

    with_client(copy)
    return int(ExitStatus.DONE)


def _types(given: Sequence[str]) -> list[str]:
    """Raise BadInputError for a type that no event ever has: silence would look like nothing had happened."""
    from cotenant_common.contracts.messages.events import EVENT_TYPES  # noqa: PLC0415 - imports pydantic

    found = [part for entry in given for part in entry.split(",") if part]
    for wanted in found:
        if not any(fnmatchcase(known, wanted) for known in EVENT_TYPES):
            raise BadInputError(f"no event has the type {wanted!r}; known: {', '.join(EVENT_TYPES)}")
    return found


def policy(node: NodeName, output: Output = Format.YAML) -> int:
    """The policy in force on a node and where each value comes from."""

    async def fetch(client: "CotenantClient") -> dict[str, Any]:
        return await client.policy(node)

    show_data(with_client(fetch), output)
    return int(ExitStatus.DONE)
