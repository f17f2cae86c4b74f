"""Tables for people, JSON and YAML for programs."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cotenant_common.model import quantity

if TYPE_CHECKING:
    from rich.console import Console

Row = Mapping[str, Any]
MISSING: Final = "-"


class Format(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[Format, typer.Option("-o", "--output", help="How to print.")]


@dataclass(frozen=True, slots=True)
class Column:
    """``value`` reads one cell; a ``wide`` column shows with ``-o wide`` only."""

    title: str
    value: Callable[[Row], Any]
    wide: bool = False
    right: bool = False


def field(title: str, key: str, *, wide: bool = False) -> Column:
    return Column(title, lambda row: row.get(key), wide=wide)


def show(rows: Sequence[Row], columns: Sequence[Column], output: Format, *, empty: str = "nothing found") -> None:
    """Print a list of things."""
    if output in (Format.JSON, Format.YAML):
        show_data(list(rows), output)
    elif not rows:
        print(empty, file=sys.stderr)
    else:
        show_table(rows, [column for column in columns if output is Format.WIDE or not column.wide])


def show_data(value: Any, output: Format) -> None:
    """Print one value as JSON, or as YAML for every other format."""
    if output is Format.JSON:
        print(json.dumps(value, indent=2, ensure_ascii=False))
        return
    import yaml  # noqa: PLC0415 - slow to import and rarely needed

    print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")


def show_table(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column.title, justify="right" if column.right else "left", no_wrap=not sys.stdout.isatty())
    for row in rows:
        table.add_row(*(Text(cell(column.value(row)), style=_style(column, row)) for column in columns))
    console().print(table)


def console(*, stderr: bool = False) -> "Console":
    from rich.console import Console  # noqa: PLC0415

    stream = sys.stderr if stderr else sys.stdout
    # A pipe has no width, and a table that was cut to fit 80 columns is useless to grep.
    return Console(file=stream, width=None if stream.isatty() else 10_000, soft_wrap=False, highlight=False)


_STYLES: Final[Mapping[str, str]] = {
    "Running": "green",
    "Succeeded": "green",
    "Ready": "green",
    "ready": "green",
    "Pending": "yellow",
    "Starting": "yellow",
    "NotReady": "red",
    "Failed": "red",
    "not ready": "red",
    "stopped": "red",
}


def _style(column: Column, row: Row) -> str:
    value = column.value(row)
    return _STYLES.get(value, "") if isinstance(value, str) else ""


def cell(value: Any) -> str:
    """``None`` is unset and shows as a dash; zero shows as zero."""
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def cpu(milli: Any) -> str | None:
    return None if milli is None else f"{int(milli) / 1000:.2f}".rstrip("0").rstrip(".")


def memory(value: Any) -> str | None:
    """Bytes for people: at most one decimal of the largest fitting binary unit."""
    if value is None:
        return None
    size = float(value)
    for unit in ("B", "Ki", "Mi", "Gi"):
        if abs(size) < 1024:
            return f"{size:.0f}{unit}" if size >= 10 or unit == "B" else f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}Ti"


def exact(name: str, value: int) -> str:
    """A resource value in its own unit."""
    if name.endswith("cpu"):
        return quantity.format_cpu(value)
    return (memory(value) or "") if name.endswith("memory") else str(value)


def resources(values: Mapping[str, int] | None) -> str | None:
    if values is None:
        return None
    return ", ".join(f"{name.rpartition('/')[2]} {exact(name, values[name])}" for name in sorted(values)) or None


def age(since_ms: Any) -> str | None:
    """``90s``, ``12m``, ``3h``, ``2d`` since a time in milliseconds."""
    if since_ms is None:
        return None
    seconds = max(0, int(time.time() - int(since_ms) / 1000))
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


class Progress:
    """What a command waits for, on stderr: a spinner on a terminal, a line per change elsewhere."""

    def __init__(self, write: Callable[[str], None], every_s: float = 0.0) -> None:
        self._write = write
        self._every_s = every_s
        self._last = ""
        self._next = 0.0

    def say(self, text: str) -> None:
        """A log needs no line per step: there, what comes within a second of the line before is left out."""
        now = time.monotonic()
        if text != self._last and now >= self._next:
            self._last, self._next = text, now + self._every_s
            self._write(text)


@contextmanager
def progress(text: str, *, quiet: bool = False) -> Iterator[Progress]:
    if quiet:
        yield Progress(lambda _: None)
        return
    if not sys.stderr.isatty():
        shown = Progress(lambda line: print(line, file=sys.stderr, flush=True), every_s=1.0)
        shown.say(text)
        yield shown
        return
    with console(stderr=True).status(text) as status:
        yield Progress(status.update)
