import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from cotenant_common.telemetry.logging import configure, get_logger


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_json_lines_carry_event_level_time_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logger = get_logger("scheduler", node="n1")
    configure("info", "json")
    logger.info("pod_bound", pod="default/web")
    logger.debug("too_quiet")
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    record = json.loads(line)
    assert (record["event"], record["level"], record["service"], record["node"], record["pod"]) == (
        "pod_bound",
        "info",
        "scheduler",
        "n1",
        "default/web",
    )
    assert record["timestamp"].endswith("Z")
    assert captured.out == ""


def fail(token: str) -> None:
    raise ValueError("out of luck" if token else "")


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_never_shows_local_variables(capsys: pytest.CaptureFixture[str], form: str) -> None:
    configure("info", form)  # type: ignore[arg-type]
    try:
        fail("s3cr3t")
    except ValueError:
        get_logger("x").exception("failed")
    shown = capsys.readouterr().err
    assert "out of luck" in shown
    assert shown.count("s3cr3t") == shown.count('fail("s3cr3t")')


def test_unconfigured_nothing_reaches_standard_output() -> None:
    program = (
        "from cotenant_common.telemetry.logging import get_logger; "
        "log = get_logger('x'); log.info('quiet'); log.warning('loud')"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert result.stdout == ""
    assert "loud" in result.stderr
    assert "quiet" not in result.stderr
