"""The demo's frame: whatever ends a run, everything is put back and what was measured is shown."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from cotenant.demo import DemoOptions, run, run_demo
from cotenant.demo.plan import Arm
from cotenant.errors import CotenantError, ExitStatus

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="reads procfs")


@pytest.fixture
def frame(monkeypatch, build):
    """A demo whose measuring is replaced; `cleaned` counts how often everything was put back."""

    class Frame:
        cleaned = 0

        async def measure(self, demo):
            demo.session.segments.append(build.segment(Arm.ALONE, {}))

    found = Frame()

    async def measure(demo):
        await found.measure(demo)

    async def clean_up(demo):
        found.cleaned += 1

    monkeypatch.setattr(run._Demo, "_measure", measure)
    monkeypatch.setattr(run._Demo, "_clean_up", clean_up)
    return found


async def test_a_run_that_goes_through_writes_its_result_and_ends_with_0(frame, tmp_path):
    status = await run_demo(DemoOptions(yes=True, output_dir=tmp_path))

    found = json.loads((tmp_path / "demo-result.json").read_text())
    assert status == ExitStatus.DONE
    assert frame.cleaned == 1
    assert found["knobs_restored"] is True
    assert found["segments"][0]["arm"] == "alone"
    assert (tmp_path / "demo-result.svg").exists()


async def test_an_interrupt_puts_everything_back_keeps_what_was_measured_and_ends_with_130(frame, tmp_path):
    ready = frame.measure

    async def measure(demo):
        await ready(demo)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    frame.measure = measure
    status = await run_demo(DemoOptions(yes=True, output_dir=tmp_path))

    assert status == ExitStatus.INTERRUPTED
    assert frame.cleaned == 1
    assert json.loads((tmp_path / "demo-result.json").read_text())["interrupted"] is True


async def test_an_error_puts_everything_back_and_is_not_swallowed(frame, tmp_path):
    async def measure(_demo):
        raise CotenantError("the service is not ready")

    frame.measure = measure
    with pytest.raises(CotenantError, match="not ready"):
        await run_demo(DemoOptions(yes=True, output_dir=tmp_path))

    assert frame.cleaned == 1


async def test_a_setting_that_is_not_restored_fails_the_run(frame, tmp_path):
    ready = frame.measure

    async def measure(demo):
        await ready(demo)
        demo.differences.append("/x/cpu.shares: was 1024, is 2")

    frame.measure = measure
    assert await run_demo(DemoOptions(yes=True, output_dir=tmp_path)) == ExitStatus.CHECK_FAILED
    assert json.loads((tmp_path / "demo-result.json").read_text())["knobs_restored"] is False


async def test_afterwards_signals_do_again_what_they_did(frame, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    await run_demo(DemoOptions(yes=True, output_dir=tmp_path))

    assert signal.getsignal(signal.SIGTERM) == before
