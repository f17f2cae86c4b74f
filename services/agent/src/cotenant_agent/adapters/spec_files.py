"""What each pod was started from, on disk: a store may be lost, and what runs here must not be lost with it."""

from dataclasses import dataclass
from pathlib import Path

from cotenant_common.contracts import codec
from cotenant_common.contracts.messages.state import SpecRecord
from cotenant_common.telemetry.logging import get_logger

_log = get_logger("agent")


@dataclass(frozen=True, slots=True)
class SpecFiles:
    """Keeps the promises of ``adapters.ports.SpecStore``. One small file per pod of this node."""

    directory: Path

    def keep(self, record: SpecRecord) -> None:
        path = self._path(record.uid)
        spare = path.with_suffix(".new")
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            spare.write_bytes(codec.encode(record))
            spare.replace(path)
        except OSError as error:
            # A disk that is full costs the pod its memory of itself, never its start.
            _log.warning("spec_not_kept", uid=record.uid, error=str(error))

    def read(self, uid: str) -> SpecRecord | None:
        try:
            return codec.decode(SpecRecord, self._path(uid).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, codec.DecodeError) as error:
            _log.warning("spec_not_read", uid=uid, error=str(error))
            return None

    def forget(self, uid: str) -> None:
        try:
            self._path(uid).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("spec_not_forgotten", uid=uid, error=str(error))

    def _path(self, uid: str) -> Path:
        return self.directory / f"{uid}.spec"
