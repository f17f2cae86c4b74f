"""Carry a plan out: write files with their modes, talk to systemd. Everything done is a line for the user."""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from cotenant.errors import BadInputError, CotenantError, RefusedError
from cotenant.install.layout import SYSUSERS, USER, PlannedFile
from cotenant.install.units import Paths
from cotenant.stack.nats import find_server

Say = Callable[[str], None]
_SYSTEMD_RUNS: Final = Path("/run/systemd/system")
_HOMES: Final = (Path("/home"), Path("/root"), Path("/run/user"))


def paths_here() -> Paths:
    """This interpreter and its nats-server. Raise BadInputError when services could not read them."""
    python = Path(sys.executable)
    for home in _HOMES:
        if python.is_relative_to(home):
            raise BadInputError(
                f"{python} is in a home directory, which the services' sandbox hides; install Cotenant elsewhere, for "
                "example: python3 -m venv /opt/cotenant && /opt/cotenant/bin/pip install cotenant"
            )
    return Paths(python=PurePosixPath(python), nats_server=PurePosixPath(find_server()))


@dataclass(frozen=True, slots=True)
class Host:
    """Where files go. With a prefix nothing but files is touched: an image is being built, not this machine."""

    prefix: Path | None
    say: Say
    dry_run: bool = False

    @property
    def staged(self) -> bool:
        return self.prefix is not None

    def place(self, path: PurePosixPath) -> Path:
        return (self.prefix or Path("/")) / path.relative_to("/")

    def require_root(self) -> None:
        if not self.staged and not self.dry_run and os.geteuid() != 0:
            raise RefusedError("units and their configuration belong to root: run this with sudo, or see --dry-run")

    def others_installed(self, units: PurePosixPath, own: str) -> bool:
        return any(path.name != own for path in self.place(units).glob("cotenant-*.service"))

    def has_systemd(self) -> bool:
        return not self.staged and _SYSTEMD_RUNS.exists()


def write_files(host: Host, files: Sequence[PlannedFile]) -> None:
    """The account first, then what it owns. Raise CotenantError."""
    for file in sorted(files, key=lambda each: each.path != SYSUSERS):
        _write(host, file)
        if file.path == SYSUSERS and not host.dry_run and not host.staged:
            _make_user(host)


def kept_token(host: Host, path: PurePosixPath) -> str | None:
    """The bus token of an earlier installation on this host: server and clients share it, so it goes into all files."""
    standing = host.place(path)
    try:
        return standing.read_text().strip() if standing.exists() else None
    except OSError as error:
        raise RefusedError(f"cannot read {standing}: {error.strerror}") from error


def _write(host: Host, file: PlannedFile) -> None:
    target = host.place(file.path)
    if file.keep and target.exists():
        host.say(f"kept     {target} (it was there)")
        return
    owner = f", owner {file.owner}" if file.owner else ""
    host.say(f"{'would write' if host.dry_run else 'wrote   '} {target} (mode {file.mode:04o}{owner})")
    if host.dry_run:
        return
    try:
        _make_directory(host, target.parent)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, file.mode)
        with os.fdopen(descriptor, "w") as sink:
            os.fchmod(descriptor, file.mode)
            sink.write(file.text)
        if file.owner and not host.staged:
            shutil.chown(target, file.owner, file.owner)
    except OSError as error:
        raise CotenantError(f"cannot write {target}: {error.strerror}") from error


def _make_directory(host: Host, directory: Path) -> None:
    if directory.exists():
        return
    # Files inside have modes of their own; the directory must be open, since services of another user look into it.
    directory.mkdir(mode=0o755, parents=True)
    if directory.name == "nats" and not host.staged:
        shutil.chown(directory, USER, USER)


def _make_user(host: Host) -> None:
    try:
        pwd.getpwnam(USER)
    except KeyError:
        pass
    else:
        return
    tool = shutil.which("systemd-sysusers")
    command = (
        [tool, str(SYSUSERS)]
        if tool
        else ["useradd", "--system", "--home-dir", "/var/lib/cotenant", "--shell", "/usr/sbin/nologin", USER]
    )
    run(command)
    host.say(f"made     user {USER}")


def run(command: Sequence[str], *, check: bool = True) -> int:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError as error:
        raise CotenantError(f"cannot run {command[0]}: {error.strerror}") from error
    if check and done.returncode:
        raise CotenantError(f"{' '.join(command)}: status {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.returncode


def start_units(host: Host, units: Sequence[str], target: str) -> None:
    """Enable and start. Without a running systemd the units are written only."""
    if host.dry_run or not host.has_systemd():
        host.say(f"next     systemctl daemon-reload && systemctl enable --now {' '.join((*units, target))}")
        return
    run(["systemctl", "daemon-reload"])
    run(["systemctl", "enable", "--now", *units, target])
    host.say(f"started  {' '.join(units)}")


def stop_units(host: Host, units: Sequence[str]) -> None:
    if host.dry_run or not host.has_systemd():
        return
    run(["systemctl", "disable", "--now", *units], check=False)
    host.say(f"stopped  {' '.join(units)}")


def remove_files(host: Host, paths: Iterable[PurePosixPath]) -> None:
    for path in paths:
        target = host.place(path)
        if not target.exists():
            continue
        host.say(f"{'would remove' if host.dry_run else 'removed '} {target}")
        if host.dry_run:
            continue
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()
    if not host.dry_run and host.has_systemd():
        run(["systemctl", "daemon-reload"])
