"""Alerts, dashboards and the runbook speak of metrics and sections that exist."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.cli.main import main
from cotenant_common.telemetry import catalogue

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
LIBRARY = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total", "process_start_time_seconds",
           "process_open_fds"}  # fmt: skip
"""What Prometheus itself and its client library provide."""


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


@lru_cache(maxsize=1)
def known() -> dict[str, tuple[str, ...]]:
    """Labels by series name."""
    return {series: each.labels for each in catalogue.find(ROOT) for series in each.series}


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(cotenant_\w+|process_\w+|python_\w+|up)\b(?=[{\[)\s>=]|$)", expression))


def labels_in(expression: str) -> Iterator[tuple[str, str]]:
    """(metric, label) of every selector."""
    for metric, selector in re.findall(r"(cotenant_\w+)\{([^}]*)\}", expression):
        for label in re.findall(r"(\w+)\s*[=!~]", selector):
            yield metric, label


def check_expression(where: str, expression: str) -> None:
    series = known()
    unknown = metrics_in(expression) - set(series) - LIBRARY
    assert not unknown, f"{where}: no such metric: {unknown}"
    for metric, label in labels_in(expression):
        assert label in series[metric], f"{where}: {metric} has no label {label}"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_uses_what_is_measured_and_has_its_runbook_section(rule: dict[str, Any]) -> None:
    check_expression(rule["alert"], rule["expr"])
    assert metrics_in(rule["expr"])
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
    assert f"### {rule['alert']}\n" in (ROOT / "docs" / "runbook.md").read_text()


def test_the_runbook_has_no_section_for_an_alert_that_is_gone() -> None:
    sections = re.findall(r"^### (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert sections == [rule["alert"] for rule in rules()]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_shows_what_is_measured(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["panels"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        for target in panel["targets"]:
            check_expression(f"{path.name}: {panel['title']}", target["expr"])


def test_an_unknown_metric_or_label_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match="no such metric"):
        check_expression("here", "rate(cotenant_scheduler_bindngs_total[5m])")
    with pytest.raises(AssertionError, match="has no label"):
        check_expression("here", 'cotenant_scheduler_waiting_pods{pod="a"}')


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on this machine")
def test_prometheus_accepts_rules_and_configuration() -> None:
    for command in (["check", "rules", str(ALERTS)], ["check", "config", str(ALERTS.with_name("prometheus.yaml"))]):
        checked = subprocess.run(["promtool", *command], check=False, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_stale_page_of_metrics_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "services" / "a" / "src" / "cotenant_a"
    source.mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (source / "app.py").write_text('made = metrics.counter("cotenant_a_things_total", "Things")\n')
    assert main(["contracts", "write", "--root", str(tmp_path)]) == 0
    assert main(["contracts", "check", "--root", str(tmp_path)]) == 0
    (source / "app.py").write_text('made = metrics.counter("cotenant_a_things_total", "Other things")\n')
    assert main(["contracts", "check", "--root", str(tmp_path)]) == 1
    assert "docs/metrics.md" in capsys.readouterr().err
