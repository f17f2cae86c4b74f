"""Every setting around the groups that a run touches, before and after: a run must leave no difference."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

# Writable, yet no settings: writing them acts or resets a counter, and their content moves by itself.
_NOT_SETTINGS: Final = (
    "procs", "tasks", "threads", "usage", "failcnt", "pressure", "event_control", "force_empty", "reset_stats",
    "kill", "peak", "numa_stat", "reclaim",
)  # fmt: skip
ABSENT: Final = "(absent)"


def is_setting(name: str, mode: int) -> bool:
    return bool(mode & 0o200) and not any(word in name for word in _NOT_SETTINGS)


def read_settings(parents: Iterable[Path], prefix: str) -> dict[str, str]:
    """Settings of the directories in which groups are made, and of every group there whose name starts with prefix."""
    found: dict[str, str] = {}
    for parent in sorted(set(parents)):
        found.update(_settings_of(parent))
        for root in sorted(parent.glob(f"{prefix}*")):
            for directory, _, _ in os.walk(root):
                found[directory] = "group"
                found.update(_settings_of(Path(directory)))
    return found


def _settings_of(directory: Path) -> dict[str, str]:
    found = {}
    try:
        entries = [entry for entry in os.scandir(directory) if entry.is_file(follow_symlinks=False)]
    except OSError:
        return {}
    for entry in entries:
        try:
            if is_setting(entry.name, entry.stat().st_mode):
                found[entry.path] = Path(entry.path).read_text().strip()
        except OSError:
            continue  # readable only while a feature is on, or never: nothing to compare
    return found


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """One line per setting that is not as it was; a group left behind is one of them."""
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return [f"{path}: was {before.get(path, ABSENT)}, is {after.get(path, ABSENT)}" for path in changed]
