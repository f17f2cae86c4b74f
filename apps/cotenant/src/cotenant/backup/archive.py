"""The backup file: a tar of one snapshot per stream and a manifest that says what each must be."""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from cotenant.errors import BadInputError

FORMAT: Final = "cotenant-backup"
VERSION: Final = 1
_MANIFEST: Final = "manifest.json"
_CHECKSUM: Final = "manifest.sha256"
_PIECE_BYTES: Final = 128 << 10


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One stream in the file; ``config`` and ``state`` are what nats-server needs to make it again."""

    stream: str
    member: str
    size_bytes: int
    sha256: str
    messages: int
    last_sequence: int
    config: Mapping[str, Any]
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    created_ms: int
    version: str
    """Of Cotenant."""
    server: str
    changed_meanwhile: tuple[str, ...]
    """Streams that were written while the others were read: each is consistent, they are not the same instant."""
    streams: tuple[StreamEntry, ...]


class Writer:
    """Write ``path`` whole or not at all; readable by its owner only, since specs hold environments."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(path.name + ".part")
        self._done = False

    def __enter__(self) -> Self:
        try:
            descriptor = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            raise BadInputError(f"cannot write {self._part}: {error.strerror}") from error
        self._file = os.fdopen(descriptor, "w+b")
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tar.close()
        if self._done:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        if self._done:
            self._part.replace(self.path)
        else:
            self._part.unlink(missing_ok=True)

    def add(self, member: str, content: IO[bytes], size_bytes: int) -> None:
        content.seek(0)
        information = tarfile.TarInfo(member)
        information.size, information.mode = size_bytes, 0o600
        self._tar.addfile(information, content)

    def finish(self, manifest: Manifest) -> None:
        data = {"format": FORMAT, "formatVersion": VERSION, **asdict(manifest)}
        text = json.dumps(data, indent=1, sort_keys=True).encode()
        self.add(_MANIFEST, io.BytesIO(text), len(text))
        checksum = f"{hashlib.sha256(text).hexdigest()}  {_MANIFEST}\n".encode()
        self.add(_CHECKSUM, io.BytesIO(checksum), len(checksum))
        self._done = True


class Archive:
    """A backup that was read and found whole."""

    def __init__(self, path: Path, tar: tarfile.TarFile, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._tar = tar

    def pieces(self, entry: StreamEntry) -> Iterator[bytes]:
        content = self._content(entry.member)
        while piece := content.read(_PIECE_BYTES):
            yield piece

    def check(self) -> None:
        """Compare every stream with its checksum. Raise BadInputError."""
        for entry in self.manifest.streams:
            found = hashlib.sha256()
            for piece in self.pieces(entry):
                found.update(piece)
            if found.hexdigest() != entry.sha256:
                raise BadInputError(f"{self.path}: {entry.member} is damaged: its checksum differs from the manifest's")

    def _content(self, member: str) -> IO[bytes]:
        return _content(self.path, self._tar, member)


def _content(path: Path, tar: tarfile.TarFile, member: str) -> IO[bytes]:
    try:
        content = tar.extractfile(member)
    except KeyError:
        content = None
    if content is None:
        raise BadInputError(f"{path}: {member} is missing; this is no backup, or only a part of one")
    return content


@contextmanager
def read(path: Path) -> Iterator[Archive]:
    """Open and check a backup. Raise BadInputError that says what is wrong with the file."""
    try:
        tar = tarfile.open(path, mode="r:")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        raise BadInputError(f"{path}: no such file") from None
    except (OSError, tarfile.TarError) as error:
        raise BadInputError(f"{path}: is no backup: {error}") from error
    with tar:
        try:
            archive = Archive(path, tar, _manifest(path, tar))
            archive.check()
        except tarfile.TarError as error:
            raise BadInputError(f"{path}: is damaged: {error}") from error
        yield archive


def _manifest(path: Path, tar: tarfile.TarFile) -> Manifest:
    text = _content(path, tar, _MANIFEST).read()
    wanted = _content(path, tar, _CHECKSUM).read().split()[:1]
    if wanted != [hashlib.sha256(text).hexdigest().encode()]:
        raise BadInputError(f"{path}: {_MANIFEST} is damaged: its checksum differs from {_CHECKSUM}")
    data = json.loads(text)
    form, version = data.pop("format", None), data.pop("formatVersion", None)
    if form != FORMAT or not isinstance(version, int):
        raise BadInputError(f"{path}: expected a {FORMAT}, got {form!r}")
    if version > VERSION:
        raise BadInputError(f"{path}: format {version} is newer than this program's {VERSION}; use a newer cotenant")
    streams = tuple(StreamEntry(**entry) for entry in data.pop("streams"))
    return Manifest(**data | {"streams": streams, "changed_meanwhile": tuple(data["changed_meanwhile"])})
