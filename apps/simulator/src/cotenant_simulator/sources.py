"""The files that users name."""

from pathlib import Path

from cotenant_simulator.errors import ScenarioError


def read_text(path: Path) -> str:
    """Raise ScenarioError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(str(path), None, "", f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ScenarioError(str(path), line, "", "cannot be read: it is not UTF-8 text") from error
