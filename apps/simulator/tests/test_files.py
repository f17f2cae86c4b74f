import csv
from pathlib import Path

import pytest

from cotenant_simulator import ScenarioError
from cotenant_simulator.files import check_target, write_csv


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_folder_gets_summary_and_series_in_long_form(tmp_path, result):
    summary, series = write_csv(tmp_path / "out", [result(1, pressure=1.5), result(2)])
    rows = _table(summary)
    pressure = [row["value"] for row in rows if row["figure"] == "pressure_minutes"]
    assert pressure == ["1.5", ""], "not known is empty"
    points = _table(series)
    used = [row for row in points if row["figure"] == "used_cpu_milli" and row["of"] == "prod" and row["seed"] == "1"]
    assert [(row["t_s"], row["value"]) for row in used] == [("5.0", "500.0"), ("15.0", "500.0"), ("25.0", "500.0")]
    assert [row["value"] for row in points if row["of"] == "system" and row["figure"] == "used_memory_bytes"] == [
        ""
    ] * 6


def test_one_file_holds_both(tmp_path, result):
    (path,) = write_csv(tmp_path / "all.csv", [result(1, pressure=1.5)])
    rows = _table(path)
    assert {row["table"] for row in rows} == {"summary", "series"}
    assert all(row["scenario"] == "story" for row in rows)


def test_text_with_commas_and_quotes_survives(tmp_path, result):
    (path,) = write_csv(tmp_path / "all.csv", [result(1, scenario='a "b", c')])
    assert _table(path)[0]["scenario"] == 'a "b", c'


def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("")
    for path, folder in ((tmp_path / "no" / "x.html", False), (tmp_path, False), (tmp_path / "file", True)):
        with pytest.raises(ScenarioError, match="cannot be written"):
            check_target(path, folder=folder)
    check_target(tmp_path / "x.html")
    check_target(tmp_path / "new", folder=True)
