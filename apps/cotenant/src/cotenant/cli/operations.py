"""backup, restore: the state of a cluster as one file. They talk to nats-server itself and need no gateway."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cotenant.cli import session
from cotenant.cli.output import Format, Output, progress, show_data
from cotenant.errors import BadInputError, NoConnectionError, RefusedError
from cotenant.stack.home import is_held, load_record

if TYPE_CHECKING:
    from cotenant.backup.archive import Manifest
    from cotenant_common.bus.nats_bus import NatsBus
    from cotenant_common.bus.nats_snapshot import StreamSnapshots

Server = Annotated[
    list[str] | None,
    typer.Option("--nats-server", help="Server to talk to; default $COTENANT_NATS_SERVERS, else the local stack's."),
]
TokenFile = Annotated[
    Path | None, typer.Option("--nats-token-file", help="File with its token; default $COTENANT_NATS_TOKEN_FILE.")
]
_CONNECT_S: Final = 10.0
_STREAM: Final = Path("-")


def register(app: typer.Typer) -> None:
    app.command()(backup)
    app.command()(restore)


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; - is standard output.")],
    events: Annotated[bool, typer.Option("--events", help="With the stored events, up to 1 GiB.")] = False,
    nats_server: Server = None,
    nats_token_file: TokenFile = None,
    output: Output = Format.TABLE,
) -> int:
    """Write all state of the cluster to one file; everything goes on meanwhile."""
    from cotenant.backup import store  # noqa: PLC0415

    with _sink(file) as path, progress("connecting", quiet=output is Format.JSON) as shown:

        async def body() -> "Manifest":
            async with _snapshots(nats_server, nats_token_file) as (snapshots, where):
                return await store.take(snapshots, path, server=where, events=events, say=shown.say)

        manifest = asyncio.run(body())
    if file != _STREAM:
        _tell(file, manifest, output, f"{file} written: ")
    return 0


@contextmanager
def _sink(file: Path) -> Iterator[Path]:
    """Where to write; a backup for standard output is made whole first, so that a reader gets all or nothing."""
    if file != _STREAM:
        yield file
        return
    if sys.stdout.isatty():
        raise BadInputError("a backup is no text for a terminal; redirect standard output to a file")
    with tempfile.TemporaryDirectory(prefix="cotenant-backup-") as directory:
        path = Path(directory) / "state.backup"
        yield path
        with path.open("rb") as whole:
            shutil.copyfileobj(whole, sys.stdout.buffer)


@contextmanager
def _source(file: Path) -> Iterator[Path]:
    if file != _STREAM:
        yield file
        return
    with tempfile.NamedTemporaryFile(prefix="cotenant-restore-") as spool:
        shutil.copyfileobj(sys.stdin.buffer, spool)
        spool.flush()
        yield Path(spool.name)


def _tell(file: Path, manifest: "Manifest", output: Format, begin: str) -> None:
    if output in (Format.JSON, Format.YAML):
        show_data(_as_data(file, manifest), output)
        return
    size = sum(entry.size_bytes for entry in manifest.streams)
    messages = sum(entry.messages for entry in manifest.streams)
    print(f"{begin}{messages} messages of {len(manifest.streams)} streams, {size / 1024:.0f} KiB")
    if manifest.changed_meanwhile:
        changed = ", ".join(manifest.changed_meanwhile)
        print(f"written meanwhile, so not all from one instant: {changed}")


def _as_data(file: Path, manifest: "Manifest") -> dict[str, Any]:
    streams = [
        {"stream": entry.stream, "messages": entry.messages, "bytes": entry.size_bytes} for entry in manifest.streams
    ]
    return {
        "file": str(file),
        "created_ms": manifest.created_ms,
        "version": manifest.version,
        "changed_meanwhile": list(manifest.changed_meanwhile),
        "streams": streams,
    }


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `cotenant backup` wrote; - is standard input.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what the store holds.")] = False,
    replicas: Annotated[
        int | None, typer.Option(min=1, max=5, help="Copies of each stream; default as in the backup.")
    ] = None,
    nats_server: Server = None,
    nats_token_file: TokenFile = None,
    output: Output = Format.TABLE,
) -> int:
    """Put a backup into an empty store. The services must be stopped; pods may run, and are adopted afterwards."""
    from cotenant.backup import archive, store  # noqa: PLC0415

    if file == _STREAM and not yes:
        raise BadInputError("standard input is the backup and cannot be asked: say --yes")
    with _source(file) as path, archive.read(path) as found:
        if not yes:
            typer.confirm(f"restore {len(found.manifest.streams)} streams of {file}?", abort=True)
        with progress("connecting", quiet=output is Format.JSON) as shown:

            async def body() -> None:
                async with _snapshots(nats_server, nats_token_file, stopped=True) as (snapshots, _):
                    await store.give_back(snapshots, found, force=force, replicas=replicas, say=shown.say)

            asyncio.run(body())
        _tell(file, found.manifest, output, f"{file} restored: ")
    return 0


@asynccontextmanager
async def _snapshots(
    servers: list[str] | None, token_file: Path | None, *, stopped: bool = False
) -> "AsyncIterator[tuple[StreamSnapshots, str]]":
    async with open_bus("cotenant-cli", servers, token_file, stopped=stopped) as (bus, where):
        yield bus.snapshots(), where


@asynccontextmanager
async def open_bus(
    name: str, servers: list[str] | None, token_file: Path | None, *, stopped: bool = False
) -> "AsyncIterator[tuple[NatsBus, str]]":
    """A connection and its server. With ``stopped`` the local stack must not run; its nats-server is started for as
    long as this takes.
    """
    from cotenant_common.bus.nats_bus import connect  # noqa: PLC0415
    from cotenant_common.bus.protocol import BusError  # noqa: PLC0415
    from cotenant_common.runtime.settings import SettingsError  # noqa: PLC0415

    async with _bus_settings(servers, token_file, stopped=stopped) as settings:
        try:
            bus = await connect(settings.nats_servers, name=name, login=settings.nats_login(), timeout_s=_CONNECT_S)
        except BusError as error:
            raise NoConnectionError(str(error)) from error
        except SettingsError as error:
            raise BadInputError(str(error)) from error
        try:
            yield bus, settings.nats_servers[0]
        finally:
            await bus.close()


@asynccontextmanager
async def _bus_settings(servers: list[str] | None, token_file: Path | None, *, stopped: bool) -> AsyncIterator[Any]:
    """ServiceSettings with the servers and the login that the options, the environment or the local stack name."""
    from cotenant_common.runtime.settings import ServiceSettings, SettingsError, load_settings  # noqa: PLC0415

    try:
        given = {"nats_servers": tuple(servers) if servers else None, "nats_token_file": token_file}
        settings = load_settings(ServiceSettings, overrides=given)
    except SettingsError as error:
        raise BadInputError(str(error)) from error
    if "nats_servers" in settings.model_fields_set:
        yield settings
        return
    async with _local_server(stopped=stopped) as (url, user):
        file = "nats_token_file" if user is None else "nats_password_file"
        yield settings.model_copy(
            update={"nats_servers": (url,), "nats_user": user, file: session.home().bus_secret(user)}
        )


@asynccontextmanager
async def _local_server(*, stopped: bool) -> AsyncIterator[tuple[str, str | None]]:
    """Its address, and the user that the command logs in as; None: the token's."""
    home = session.home()
    record = load_record(home)
    running = record is not None and is_held(home)
    if not stopped:
        if record is None or not running:
            raise NoConnectionError(
                f"no stack runs in {home.root}; start one with `cotenant up`, or name a server with --nats-server"
            )
        yield record.nats_url, record.bus_user
        return
    if running:
        raise RefusedError(
            f"the stack in {home.root} runs, and services that write would be overtaken; end it first (Ctrl-C in "
            "`cotenant up --foreground` leaves the pods running, `cotenant down` ends them)"
        )
    from cotenant.stack import ports  # noqa: PLC0415
    from cotenant.stack.home import hold  # noqa: PLC0415
    from cotenant.stack.nats import prepare_nats  # noqa: PLC0415

    home.create()
    with hold(home):
        nats = prepare_nats(home, ports.choose("nats-server", None, None, []))
        await nats.start()
        try:
            yield nats.url, None
        finally:
            await nats.stop()
