"""plan: what a change would do to the live system, decided by the production services on a copy of it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cotenant.cli import manifests
from cotenant.cli.objects import Namespace, apply_documents
from cotenant.cli.output import (
    MISSING,
    Column,
    Format,
    Output,
    cpu,
    exact,
    field,
    memory,
    progress,
    show_data,
    show_table,
)
from cotenant.cli.session import with_client
from cotenant.cli.values import duration_s, kind, namespace_for
from cotenant.errors import BadInputError, CotenantError, ExitStatus

if TYPE_CHECKING:
    from cotenant.client import CotenantClient

Json = dict[str, Any]
Target = tuple[str, str | None, str]

_SHOWN_ROWS: Final = 40


def register(app: typer.Typer) -> None:
    app.command()(plan)


def plan(
    filename: Annotated[
        list[str] | None, typer.Option("-f", "--filename", help="File, directory or - for stdin; repeatable.")
    ] = None,
    drain: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="Empty this node as well; repeatable.")
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND/[NAMESPACE/]NAME", help="Delete this object as well; repeatable."),
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", help="Virtual time to try; default until nothing happens, at most 5m.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List what stays and what goes on waiting, too.")] = False,
    namespace: Namespace = "default",
    output: Output = Format.TABLE,
) -> int:
    """Say who would land where, move, leave or not fit, and which shares change; write nothing.

    Status 2 when something would not fit.
    """
    from cotenant_simulator import restore, whatif  # noqa: PLC0415 - imports every service

    if not (filename or drain or delete):
        raise BadInputError("expected -f FILE, --drain NODE or --delete KIND/NAME: a plan needs a change")
    documents = manifests.read_documents(filename) if filename else []
    targets = [_target(text, namespace) for text in delete or ()]
    for_ms = _for_ms(for_)

    with progress("copying the live state") as shown:
        results, body = with_client(lambda client: _look(client, documents, targets))
        try:
            snapshot = restore.read_snapshot(body)
        except restore.SnapshotError as error:
            raise CotenantError(str(error)) from error
        _check_nodes(drain or (), body)
        question = whatif.Question(_parsed(documents), _refs(targets), tuple(drain or ()), for_ms)
        answer = _asked(whatif, snapshot, question, shown.say)
    answer = {"fits": whatif.fits(answer), "objects": results, **answer}
    if not everything:
        answer["stays"], answer["waits"] = len(answer["stays"]), len(answer["waits"])
    if output in (Format.JSON, Format.YAML):
        show_data(answer, output)
    else:
        _show(answer, wide=output is Format.WIDE)
    return int(ExitStatus.DONE if answer["fits"] else ExitStatus.DOES_NOT_FIT)


async def _look(
    client: "CotenantClient", documents: Sequence[manifests.Document], targets: Sequence[Target]
) -> tuple[list[Json], Json]:
    """What the live gateway says to the change, asked dry, and its snapshot. Raise BadInputError and its kin."""
    results = await apply_documents(client, documents, dry_run=True) if documents else []
    for kind_name, space, name in targets:
        await client.delete(kind_name, name, space, dry_run=True)
    return results, await client.snapshot()


def _for_ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        for_s = duration_s(text)
    except BadInputError as error:
        raise BadInputError(f"--for: {error}") from error
    if not 1 <= for_s <= 7 * 86_400:
        raise BadInputError(f"--for: expected a duration from 1s to 7d, got {text!r}")
    return round(1000 * for_s)


def _target(text: str, namespace: str) -> Target:
    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise BadInputError(f"--delete: expected KIND/NAME or KIND/NAMESPACE/NAME, got {text!r}")
    kind_name = kind(parts[0])
    return kind_name, namespace_for(kind_name, parts[1] if len(parts) == 3 else namespace), parts[-1]


def _check_nodes(names: Sequence[str], body: Json) -> None:
    known = sorted(str(one["value"].get("node")) for one in body["buckets"]["nodes"]["entries"])
    for name in names:
        if name not in known:
            raise BadInputError(f"--drain: no node {name!r}; known: {', '.join(known) or 'none'}")


def _parsed(documents: Sequence[manifests.Document]) -> tuple[Any, ...]:
    """As the gateway reads them; it has accepted this very text already."""
    from cotenant_gateway.core.yaml_source import load  # noqa: PLC0415

    return tuple(load(manifests.join(documents))) if documents else ()


def _refs(targets: Sequence[Target]) -> tuple[Any, ...]:
    from cotenant_simulator.core.scenario import ObjectRef  # noqa: PLC0415

    return tuple(ObjectRef(*target) for target in targets)


def _asked(whatif: Any, snapshot: Any, question: Any, say: Any) -> Json:
    from cotenant_gateway.core.errors import ApiError  # noqa: PLC0415
    from cotenant_simulator.cluster import RefusedError  # noqa: PLC0415
    from cotenant_simulator.errors import SimulationError  # noqa: PLC0415

    try:
        answer: Json = whatif.ask(snapshot, question, say)
    except (RefusedError, ApiError) as error:
        raise BadInputError(f"the copy's gateway refuses the change, which the live one took: {error}") from error
    except SimulationError as error:
        raise CotenantError(str(error)) from error
    return answer


# For people


def _show(answer: Json, *, wide: bool) -> None:
    for title, key, columns in _SECTIONS:
        rows = answer[key]
        if isinstance(rows, list) and rows:
            _section(title, rows, columns, wide=wide)
    _section("Quota shares, before > after", _quota_rows(answer["quotas"], wide=wide), _QUOTAS, wide=wide)
    _section("Nodes, before > after", _node_rows(answer["nodes"], wide=wide), _NODES, wide=wide)
    for drain in answer["drains"]:
        for left in drain["left"]:
            print(f"{left['pod']} would not leave {drain['node']}: {left['message']}")
    if answer["hot"]:
        print(f"hot afterwards: {', '.join(answer['hot'])}")
    if answer["settled"]:
        print(f"{len(answer['settled'])} pods change without the plan, too (see settled in -o json)")
    for note in answer["notes"]:
        print(f"note: {note}")
    print(_sentence(answer))


def _section(title: str, rows: Sequence[Json], columns: Sequence[Column], *, wide: bool) -> None:
    if not rows:
        return
    print(f"{title}:")
    shown = rows if wide else rows[:_SHOWN_ROWS]
    show_table(shown, [column for column in columns if wide or not column.wide])
    if len(shown) < len(rows):
        print(f"and {len(rows) - len(shown)} more; -o wide lists all")
    print()


def _sentence(answer: Json) -> str:
    counts = ", ".join(
        f"{len(answer[key])} {words}"
        for key, words in (
            ("lands", "would land"), ("moves", "move"), ("restarts", "restart"), ("goes", "leave"), ("fails", "fail"),
            ("does_not_fit", "not fit"),
        )
        if answer[key]
    )  # fmt: skip
    ended = "nothing happened any more" if answer["ended"] == "quiet" else "the time was up"
    verdict = "everything fits" if answer["fits"] else "not everything fits"
    stays = answer["stays"] if isinstance(answer["stays"], int) else len(answer["stays"])
    return (
        f"{verdict}: {counts or 'no pod changes'}, {stays} stay; "
        f"after {answer['virtual_ms'] / 1000:g} virtual seconds {ended}; nothing was written"
    )


def _after(row: Mapping[str, Any]) -> str | None:
    return None if row["after_ms"] is None else f"{row['after_ms'] / 1000:g}s"


def _helps(row: Mapping[str, Any]) -> str | None:
    return "; ".join(str(help_) for help_ in row.get("helps") or ()) or None


def _nearest(row: Mapping[str, Any]) -> str | None:
    """The refusal with the most to say: one node by name, and by how much it missed."""
    found = next((one for one in row.get("refusals") or () if one.get("example_node")), None)
    return None if found is None else f"{found['example_node']}: {found['message']}"


_WHY: Final = (field("REASON", "reason"), field("MESSAGE", "message"))
_SECTIONS: Final[tuple[tuple[str, str, tuple[Column, ...]], ...]] = (
    (
        "Would not fit",
        "does_not_fit",
        (
            field("POD", "pod"), field("RAN ON", "ran_on"), *_WHY, Column("WOULD HELP", _helps),
            Column("NEAREST", _nearest, wide=True),
        ),
    ),
    (
        "Would land",
        "lands",
        (
            field("POD", "pod"), field("NODE", "node"), Column("AFTER", _after), field("QUOTA", "quota"),
            field("RESERVATION", "reservation", wide=True), field("CPUSET", "cpuset", wide=True),
            field("QOS", "qos", wide=True),
        ),
    ),
    ("Would move", "moves", (field("POD", "pod"), field("FROM", "from"), field("TO", "to"), *_WHY)),
    ("Would start again where it is", "restarts", (field("POD", "pod"), field("NODE", "node"), *_WHY)),
    ("Would leave", "goes", (field("POD", "pod"), field("NODE", "node"), *_WHY)),
    ("Would fail", "fails", (field("POD", "pod"), *_WHY)),
    ("Go on waiting", "waits", (field("POD", "pod"), *_WHY)),
    ("Stay", "stays", (field("POD", "pod"), field("NODE", "node"))),
)  # fmt: skip
_QUOTAS: Final = (
    field("QUOTA", "quota"), field("RESOURCE", "resource"), field("RUNTIME", "runtime"), field("USED", "used"),
    field("REQUEST", "request"), field("MIN", "min", wide=True), field("MAX", "max", wide=True),
)  # fmt: skip
_NODES: Final = (
    field("NODE", "node"), field("BATCH CPU", "batch_cpu"), field("BATCH MEMORY", "batch_memory"),
    field("CPU USED", "cpu_used"), field("HEAT", "heat"),
)  # fmt: skip


_BECOMES: Final = " > "


def _pair(before: str | None, after: str | None) -> str | None:
    return before if before == after else f"{before or MISSING}{_BECOMES}{after or MISSING}"


def _quota_rows(rows: Sequence[Json], *, wide: bool) -> list[Json]:
    found = []
    for row in rows:
        shares = {
            name: _pair(*(None if amount is None else exact(row["resource"], amount) for amount in row[name]))
            for name in ("min", "max", "runtime", "used", "request")
        }
        if wide or any(row[name][0] != row[name][1] for name in ("runtime", "used", "request", "max", "min")):
            found.append({"quota": row["quota"], "resource": row["resource"].rpartition("/")[2], **shares})
    return found


def _node_rows(rows: Sequence[Json], *, wide: bool) -> list[Json]:
    """Use wobbles: a node of which nothing else changes, as shown, is listed with ``-o wide`` only."""
    found = []
    for row in rows:
        used = [None if usage is None else cpu(usage["cpu"]) for usage in row["usage"]]
        shown = {
            "batch_cpu": _pair(*(cpu(amount) for amount in row["batch_cpu"])),
            "batch_memory": _pair(*(memory(amount) for amount in row["batch_memory"])),
            "heat": _pair(*row["heat"]),
        }
        if wide or any(text is not None and _BECOMES in text for text in shown.values()):
            found.append({"node": row["node"], **shown, "cpu_used": _pair(*used)})
    return found
