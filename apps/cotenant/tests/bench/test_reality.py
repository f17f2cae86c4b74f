import json
from pathlib import Path
from typing import Any

import pytest

from cotenant.bench import arms, reality
from cotenant.demo.plan import Arm
from cotenant.errors import BadInputError

SCENARIO = Path(__file__).parents[4] / "scenarios" / "demo-arms.yaml"
SEGMENT_S = 6.0


def timeline(service: tuple[float, ...], busy: tuple[float, ...], admitted: tuple[int, ...]) -> list[dict[str, Any]]:
    """One observation in the middle of each step, and the same again at its end."""
    step = SEGMENT_S / len(service)
    return [
        {"at_s": step * (at + part), "service_cores": cores, "busy_ratio": ratio, "admitted": count}
        for at, (cores, ratio, count) in enumerate(zip(service, busy, admitted, strict=True))
        for part in (0.5, 1.0)
    ]


def arm_figures(busy: float, service: float, leftover: float) -> dict[str, Any]:
    return {"busy": busy, "service_cores": service, "leftover_core_s": leftover, "seconds": SEGMENT_S}


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """A quiet 2-core machine, as a demo saw it."""
    alone = timeline((0.2, 0.8, 0.4), (0.15, 0.5, 0.25), (0, 0, 0))
    full = timeline((0.2, 0.8, 0.4), (1.0, 1.0, 1.0), (11, 11, 11))
    some = timeline((0.2, 0.8, 0.4), (0.93, 0.95, 0.94), (7, 7, 6))
    work = {"hash": {"units": 10, "cpu_s": 7.2}}
    body = {
        "machine": {"cores": 2, "memory_bytes": 8 << 30},
        "calibration": {"segment_s": SEGMENT_S},
        "arms": {
            "alone": arm_figures(0.3, 0.467, 8.4),
            "uncontrolled": arm_figures(1.0, 0.16, 10.2) | {"memory_over_grant_bytes": 1 << 30},
            "weights": arm_figures(1.0, 0.46, 8.4),
            "cotenant": arm_figures(0.94, 0.467, 8.4),
        },
        "segments": [
            {"arm": "alone", "work": {}, "timeline": alone},
            {"arm": "uncontrolled", "work": work, "timeline": full},
            {"arm": "weights", "work": work, "timeline": full},
            {"arm": "cotenant", "work": work, "timeline": some},
        ],
    }
    file = tmp_path / "demo-result.json"
    file.write_text(json.dumps(body))
    return file


def test_the_simulator_is_given_the_arm_without_neighbours_only(result: Path) -> None:
    given = reality.given_by(reality.read_result(result))
    assert [(step.service_milli, step.system_milli) for step in given.steps] == [(200, 100), (800, 200), (400, 100)]
    assert (given.cores, given.segment_s, given.balloon_bytes) == (2, SEGMENT_S, (1 << 30) + (128 << 20))


def test_measured_and_simulated_stand_side_by_side(result: Path) -> None:
    found = reality.compare(result, lambda _: None)
    rows = {(row["arm"], row["figure"]): row for row in found["figures"]}
    assert len(rows) == len(Arm) * len(reality.FIGURES)
    assert all(row["deviation"] is None or row["deviation"] == pytest.approx(
        row["simulated"] - row["measured"], abs=0.002) for row in rows.values())  # fmt: skip
    assert rows["cotenant", "evictions"]["measured"] == 1
    assert rows["cotenant", "batch_cores"]["measured"] == 1.2
    assert rows["alone", "batch_share_percent"]["measured"] is None


def test_the_model_fills_the_machine_and_spares_the_service(result: Path) -> None:
    given = reality.given_by(reality.read_result(result))
    model = reality.simulated(given)
    alone, cotenant = model[Arm.ALONE], model[Arm.COTENANT]
    assert model[Arm.UNCONTROLLED].service_cores < 0.5 * alone.service_cores
    assert cotenant.service_cores == pytest.approx(alone.service_cores, rel=0.01)
    assert alone.busy_percent < 40
    assert 90 < cotenant.busy_percent < 100
    assert 0 < cotenant.admitted < model[Arm.WEIGHTS].admitted


def test_the_scenario_in_the_repository_is_what_the_code_makes() -> None:
    made = arms.text(arms.FIXED, arms.EXPECTED)
    assert SCENARIO.read_text() == made, "write arms.text(arms.FIXED, arms.EXPECTED) to it"


def test_the_scenario_can_be_written_and_simulated(result: Path, tmp_path: Path, cli) -> None:
    file = tmp_path / "arms.yaml"
    done = cli("bench", "reality", str(result), "--scenario", str(file), "-o", "json")
    assert done.status == 0
    assert json.loads(done.out)["given"]["cores"] == 2
    assert cli("simulate", str(file)).status == 0


def test_the_table_names_arms_and_figures(result: Path, cli) -> None:
    done = cli("bench", "reality", str(result))
    assert done.status == 0
    assert "machine busy, percent" in done.out
    assert "cotenant" in done.out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not JSON"),
        ("[]", "expected the demo-result.json"),
        ('{"segments": []}', "nothing of the arms alone"),
    ],
)
def test_what_is_no_result_is_refused_by_name(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(BadInputError, match=told) as problem:
        reality.read_result(file)
    assert str(file) in str(problem.value)


def test_a_result_of_another_version_is_refused(result: Path) -> None:
    body = json.loads(result.read_text())
    del body["segments"][1]["work"]
    result.write_text(json.dumps(body))
    with pytest.raises(BadInputError, match="not a result of this version"):
        reality.compare(result, lambda _: None)


def test_a_missing_file_is_status_three(cli, tmp_path: Path) -> None:
    assert cli("bench", "reality", str(tmp_path / "none.json")).status == 3
