import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_agent.runtime import LogLimits
from cotenant_agent.runtime.logs import read_log, tail_offset
from cotenant_agent.runtime.shim import output
from cotenant_agent.runtime.testing import Bench, pod, sh


async def test_log_is_rotated_and_capped(bench: Bench) -> None:
    limits = LogLimits(max_bytes=8192, files=3)
    await bench.runtime.start(pod(sh("seq 1 20000", log=limits)))
    await bench.ended()
    files = sorted((bench.state_dir / "pods/uid-1/main").glob("log*"))
    assert [path.name for path in files] == ["log", "log.1", "log.2"]
    assert all(0 < path.stat().st_size <= 8192 for path in files)
    lines = (await bench.output()).splitlines()
    assert lines == [str(n).encode() for n in range(20001 - len(lines), 20001)]


async def test_follow_crosses_rotation_without_gap(bench: Bench) -> None:
    script = "i=0; while test $i -lt 3000; do echo line-$i; i=$((i+1)); done"
    await bench.runtime.start(pod(sh(script, log=LogLimits(max_bytes=4096, files=50))))
    assert await bench.output(follow=True) == b"".join(b"line-%d\n" % n for n in range(3000))


async def test_tail_spans_files(bench: Bench) -> None:
    await bench.runtime.start(pod(sh("seq 1 2000", log=LogLimits(max_bytes=4096, files=5))))
    await bench.ended()
    assert await bench.output(tail=3) == b"1998\n1999\n2000\n"
    assert await bench.output(tail=0) == b""
    assert (await bench.output(tail=1500)).splitlines()[0] == b"501"


async def test_logs_of_an_unknown_container_are_empty(bench: Bench) -> None:
    assert await bench.output("never-there", follow=True) == b""


async def test_reader_that_lags_goes_on_with_the_oldest_file_left(tmp_path: Path) -> None:
    log = tmp_path / "log"
    writer = output.RotatedLog(str(log), 10, 2)
    writer.write(b"first\n")
    writing = iter([True, False])
    reader = read_log(log, None, lambda: next(writing))
    assert await anext(reader) == b"first\n"
    for word in (b"second\n", b"third\n", b"fourth\n"):
        writer.write(word)
    async with asyncio.timeout(10):
        assert [data async for data in reader] == [b"third\n", b"fourth\n"]


def test_full_disk_drops_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = output.RotatedLog(str(tmp_path / "log"), 1000, 2)
    real = output.os.write

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output.os, "write", full)
    log.write(b"lost\n")
    log.write(b"lost too\n")
    monkeypatch.setattr(output.os, "write", real)
    log.write(b"kept\n")
    assert log.dropped_bytes == 14
    assert (tmp_path / "log").read_bytes() == b"[cotenant: 14 bytes of output dropped, disk full]\nkept\n"


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=60), max_size=30), st.integers(1, 40), st.integers(1, 4))
def test_rotation_keeps_the_newest_bytes_and_the_cap(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], max_bytes: int, files: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    log = output.RotatedLog(str(path), max_bytes, files)
    for chunk in chunks:
        log.write(chunk)
    kept = [p.read_bytes() for p in (path.with_name(f"log.{n}") for n in range(files, 0, -1)) if p.exists()]
    kept += [path.read_bytes()] if path.exists() else []
    assert len(kept) <= files
    assert all(len(data) <= max_bytes for data in kept)
    assert b"".join(chunks).endswith(b"".join(kept))


@settings(deadline=None)
@given(st.text("ab\n", max_size=40), st.integers(0, 12))
def test_tail_is_what_splitting_into_lines_gives(
    tmp_path_factory: pytest.TempPathFactory, text: str, lines: int
) -> None:
    path = tmp_path_factory.mktemp("tail") / "log"
    path.write_text(text)
    offset, found = tail_offset(path, lines)
    wanted = text.splitlines(keepends=True)[-lines:] if lines else []
    assert text[offset:] == "".join(wanted)
    assert found == len(wanted)
