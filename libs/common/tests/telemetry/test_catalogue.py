from pathlib import Path

import pytest

from cotenant_common.telemetry import catalogue

SOURCE = """
_WHAT = "Charges an audit corrected"

class Service:
    def __init__(self, metrics):
        self._repairs = metrics.counter("cotenant_x_repairs_total", _WHAT)
        self._took = metrics.histogram("cotenant_x_decision_seconds", "One attempt")
        metrics.observe("cotenant_x_errors_total", "Errors", lambda: {})
        self._other = registry.counter("not_ours_total", "x")

    def run(self):
        self._repairs.add(1, {"reason": "drift", "kind": "node"})
        self._took.record(0.1)
"""


def test_calls_are_declarations_with_the_labels_that_are_recorded() -> None:
    found = {each.name: each for each in catalogue.read(SOURCE, "cotenant_x")}
    assert set(found) == {"cotenant_x_repairs_total", "cotenant_x_decision_seconds", "cotenant_x_errors_total"}
    repairs = found["cotenant_x_repairs_total"]
    assert (repairs.kind, repairs.description) == ("counter", "Charges an audit corrected")
    assert repairs.labels == ("kind", "reason", "service")
    assert found["cotenant_x_errors_total"].labels == ("kind", "service")
    assert found["cotenant_x_decision_seconds"].series[0] == "cotenant_x_decision_seconds_bucket"


def test_a_description_that_cannot_be_read_is_refused_with_its_place() -> None:
    with pytest.raises(catalogue.CatalogueError, match=r"a\.py:1: expected name and description"):
        catalogue.read('counter = m.counter("cotenant_x_total", describe())', "x", "a.py")


def test_one_name_cannot_mean_two_things(tmp_path: Path) -> None:
    for service, text in (("a", "One"), ("b", "Another")):
        folder = tmp_path / "services" / service / "src" / f"cotenant_{service}"
        folder.mkdir(parents=True)
        (folder / "app.py").write_text(f'm.counter("cotenant_bus_total", "{text}")\n')
    with pytest.raises(catalogue.CatalogueError, match="declared differently in cotenant_a"):
        catalogue.find(tmp_path)


def test_every_metric_is_named_for_its_unit_or_what_it_counts() -> None:
    declared = catalogue.find(Path(__file__).parents[4])
    assert declared
    for each in declared:
        assert (each.kind == "counter") == each.name.endswith("_total"), each.name
        assert each.kind != "histogram" or each.name.endswith(("_seconds", "_bytes")), each.name
