"""What every knob held before the agent first wrote it, on disk before the write happens."""

import json
from pathlib import Path

from cotenant_agent.cgroup.files import Knob, KnobValue
from cotenant_agent.cgroup.tree import is_within

_COMPACT_AFTER = 2_000


class KnobJournal:
    """Append-only JSON lines. Groups do not outlive a reboot, so the page cache is durable enough: no fsync."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._originals: dict[tuple[str, Knob], KnobValue] = {}
        self._lines = 0
        if path is not None and path.exists():
            self._load(path)

    def _load(self, path: Path) -> None:
        for line in path.read_text().splitlines():
            self._lines += 1
            try:
                entry = json.loads(line)
                if "forget" in entry:
                    self._drop(entry["forget"])
                else:
                    key = (entry["group"], Knob(entry["knob"]))
                    self._originals.setdefault(key, entry["original"])
            except (ValueError, KeyError, TypeError):
                continue  # the last line of a killed agent may be cut short; its write never happened

    def _drop(self, group: str) -> bool:
        gone = [key for key in self._originals if is_within(key[0], group)]
        for key in gone:
            del self._originals[key]
        return bool(gone)

    def remember(self, group: str, knob: Knob, original: KnobValue) -> None:
        if (group, knob) in self._originals:
            return
        self._originals[group, knob] = original
        self._append({"group": group, "knob": knob.value, "original": original})

    def forget(self, group: str) -> None:
        """The group was removed, and its knobs with it."""
        if self._drop(group):
            self._append({"forget": group})

    def original(self, group: str, knob: Knob) -> KnobValue | None:
        return self._originals.get((group, knob))

    def entries(self) -> list[tuple[str, Knob, KnobValue]]:
        return [(group, knob, value) for (group, knob), value in self._originals.items()]

    def _append(self, entry: dict[str, KnobValue]) -> None:
        if self._path is None:
            return
        self._lines += 1
        if self._lines > _COMPACT_AFTER + 2 * len(self._originals):
            self._compact(self._path)
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def _compact(self, path: Path) -> None:
        fresh = path.with_suffix(".new")
        lines = [
            json.dumps({"group": group, "knob": knob.value, "original": value}) for group, knob, value in self.entries()
        ]
        fresh.write_text("".join(line + "\n" for line in lines))
        fresh.replace(path)
        self._lines = len(lines)

    def clear(self) -> None:
        self._originals.clear()
        self._lines = 0
        if self._path is not None:
            self._path.unlink(missing_ok=True)
