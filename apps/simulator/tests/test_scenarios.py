"""Each of our scenarios does what it says, and does it the same way twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant_simulator import run
from cotenant_simulator.core.checks import describe

SCENARIOS = sorted((Path(__file__).parents[3] / "scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_holds_twice_with_the_same_bytes(path: Path):
    first = run(path)
    assert [describe(one) for one in first.verdicts if not one.ok] == []
    assert first.verdicts, "a scenario that expects nothing shows nothing"
    assert first.troubles == [], "no service may log an error in a scenario that goes well"
    assert run(path).json() == first.json()


def test_there_are_scenarios():
    assert len(SCENARIOS) >= 8


def test_the_order_of_hashes_does_not_matter():
    outputs = [_in_a_process(SCENARIOS[0], seed) for seed in ("1", "2")]
    assert outputs[0] == outputs[1]


def _in_a_process(path: Path, hash_seed: str) -> bytes:
    command = [sys.executable, "-m", "cotenant_simulator", str(path), "-o", "json"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(command, env=environment, capture_output=True, check=True).stdout
