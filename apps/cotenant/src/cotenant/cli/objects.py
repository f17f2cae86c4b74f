"""apply, delete, get, describe: objects by kind and name."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.cli import manifests, views
from cotenant.cli.output import Format, Output, progress, show, show_data
from cotenant.cli.session import with_client
from cotenant.cli.values import kind, kind_and_name, namespace_for
from cotenant.errors import BadInputError, ExitStatus, NotFoundError

if TYPE_CHECKING:
    from cotenant.client import CotenantClient

Files = Annotated[list[str], typer.Option("-f", "--filename", help="File, directory or - for stdin; repeatable.")]
Namespace = Annotated[str, typer.Option("-n", "--namespace", help="Namespace of the object.")]
AllNamespaces = Annotated[bool, typer.Option("-A", "--all-namespaces", help="Every namespace.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]

_SHOWN_FAULTS = 10


def register(app: typer.Typer) -> None:
    app.command()(apply)
    app.command()(delete)
    app.command()(get)
    app.command()(describe)


def apply(filename: Files, dry_run: DryRun = False, output: Output = Format.TABLE) -> int:
    """Create or change the objects in files: all of them or none."""
    documents = manifests.read_documents(filename)

    async def send(client: "CotenantClient") -> list[dict[str, Any]]:
        return await apply_documents(client, documents, dry_run=dry_run)

    results = with_client(send)
    if output in (Format.JSON, Format.YAML):
        show_data(results, output)
    else:
        for result in results:
            _print_result(result, dry_run=dry_run)
    return int(ExitStatus.DONE)


async def apply_documents(
    client: "CotenantClient", documents: Sequence[manifests.Document], *, dry_run: bool
) -> list[dict[str, Any]]:
    """Results with the place each object stands at. Raise BadInputError with the place of each fault."""
    try:
        results = await client.apply(manifests.join(documents), dry_run=dry_run)
    except BadInputError as error:
        faults = error.details.get("errors")
        if not faults:
            raise
        shown = [_fault(fault, documents) for fault in faults[:_SHOWN_FAULTS]]
        shown += [f"and {len(faults) - _SHOWN_FAULTS} more"] if len(faults) > _SHOWN_FAULTS else []
        raise BadInputError("; ".join([*shown, "nothing was changed"])) from error
    for document, result in zip(documents, results, strict=False):
        result["source"] = document.place
    return results


def _fault(fault: dict[str, Any], documents: Sequence[manifests.Document]) -> str:
    """``pod.yaml:7: spec.containers[0].comand: unknown field``: the gateway knows lines of what it was sent."""
    place = manifests.place_of(documents, fault.get("line"))
    field = f"{fault['field']}: " if fault.get("field") else ""
    return f"{place}: {field}{fault.get('message')}"


def _print_result(result: dict[str, Any], *, dry_run: bool) -> None:
    for warning in result.get("warnings") or ():
        print(f"cotenant: warning: {result.get('source')}: {warning}", file=sys.stderr)
    print(f"{views.object_name(result)} {result['action']}{' (dry run)' if dry_run else ''}")


def delete(
    target: Annotated[list[str] | None, typer.Argument(metavar="[KIND NAME... | KIND/NAME...]")] = None,
    filename: Annotated[
        list[str] | None, typer.Option("-f", "--filename", help="Delete what these files name.")
    ] = None,
    namespace: Namespace = "default",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return when the objects are gone.")] = True,
    timeout: Annotated[str, typer.Option(help="How long to wait.")] = "60s",
    force: Annotated[bool, typer.Option(help="Do not wait for a node that is dead.")] = False,
    ignore_not_found: Annotated[bool, typer.Option(help="A missing object is no error.")] = False,
    dry_run: DryRun = False,
) -> int:
    """Delete objects; pods get their grace period."""
    from cotenant.cli.values import duration_s  # noqa: PLC0415

    targets = _targets(target or [], filename or [], namespace)
    timeout_s = duration_s(timeout)

    async def remove(client: "CotenantClient") -> list[NotFoundError]:
        missing: list[NotFoundError] = []
        for kind_name, space, name in targets:
            try:
                await client.delete(kind_name, name, space, force=force, dry_run=dry_run)
            except NotFoundError as error:
                # The others were asked to go as well: one that is gone already is no reason to keep them.
                missing.append(error)
                continue
            if wait and not dry_run:
                with progress(f"waiting for {kind_name.lower()}/{name} to go"):
                    await client.wait_gone(kind_name, name, space, timeout_s=timeout_s)
            print(f"{kind_name.lower()}/{name} deleted{' (dry run)' if dry_run else ''}")
        return missing

    missing = with_client(remove)
    if missing and not ignore_not_found:
        raise NotFoundError("; ".join(str(error) for error in missing))
    return int(ExitStatus.DONE)


def _targets(words: Sequence[str], files: Sequence[str], namespace: str) -> list[tuple[str, str | None, str]]:
    if bool(words) == bool(files):
        raise BadInputError("expected KIND NAME, KIND/NAME or -f FILE")
    if files:
        found = [manifests.identity(document) for document in manifests.read_documents(list(files))]
        # Owners and users of an object come after it in a file, so the last goes first.
        return [
            (kind_name, namespace_for(kind_name, space or namespace), name)
            for kind_name, space, name in reversed(found)
        ]
    if "/" in words[0]:
        pairs = [kind_and_name(word) for word in words]
    elif len(words) < 2:
        raise BadInputError(f"expected the name of the {words[0]} to delete")
    else:
        pairs = [(kind(words[0]), name) for name in words[1:]]
    return [(kind_name, namespace_for(kind_name, namespace), name) for kind_name, name in pairs]


def get(
    kind_: Annotated[str, typer.Argument(metavar="KIND", help="pods, deployments, jobs, nodes, elasticquotas, …")],
    name: Annotated[str | None, typer.Argument()] = None,
    namespace: Namespace = "default",
    all_namespaces: AllNamespaces = False,
    output: Output = Format.TABLE,
) -> int:
    """List objects of a kind, or show one."""
    kind_name, name = _kind_with_name(kind_, name)
    space = None if all_namespaces else namespace_for(kind_name, namespace)

    async def fetch(client: "CotenantClient") -> list[dict[str, Any]]:
        if kind_name == "Pod":
            rows = await client.pods(space)
        elif kind_name == "Node":
            rows = await client.nodes()
        elif name is not None:
            rows = [await client.get(kind_name, name, space)]
        else:
            rows = await client.list(kind_name, space)
        return rows if name is None else [row for row in rows if views.name_of(row) == name]

    rows = with_client(fetch)
    if name is not None and not rows:
        raise NotFoundError(f"no {kind_name.lower()} {name!r}" + (f" in namespace {space}" if space else ""))
    if name is not None and output in (Format.JSON, Format.YAML):
        show_data(rows[-1], output)
    else:
        show(rows, views.columns(kind_name, namespaces=all_namespaces), output, empty=f"no {kind_name.lower()} found")
    return int(ExitStatus.DONE)


def _kind_with_name(word: str, name: str | None) -> tuple[str, str | None]:
    if "/" in word and name is None:
        return kind_and_name(word)
    return kind(word), name


def describe(
    kind_: Annotated[str, typer.Argument(metavar="KIND", help="Kind, or KIND/NAME.")],
    name: Annotated[str | None, typer.Argument()] = None,
    namespace: Namespace = "default",
    output: Output = Format.YAML,
) -> int:
    """Show all that is known about one object: what was asked, what is, and what happened."""
    kind_name, found = _kind_with_name(kind_, name)
    if found is None:
        raise BadInputError(f"expected the name of the {kind_name.lower()} to describe")
    space = namespace_for(kind_name, namespace)

    async def collect(client: "CotenantClient") -> dict[str, Any]:
        return await views.describe(client, kind_name, found, space)

    show_data(with_client(collect), output)
    return int(ExitStatus.DONE)
