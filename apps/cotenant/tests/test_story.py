"""What the story's bench changes about its scenarios, and when it calls a fleet enough."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.bench import story
from cotenant.errors import BadInputError

SCENARIOS = Path(__file__).parents[3] / "scenarios"


@pytest.fixture(params=[story.FLEET, story.FESTIVAL])
def whole(request: pytest.FixtureRequest) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((SCENARIOS / f"{request.param}.yaml").read_text())
    return loaded


def kinds(one: dict[str, Any]) -> list[str]:
    applied = [each["kind"] for entry in one["spec"]["timeline"] for each in entry.get("apply", ())]
    return [each["kind"] for each in one["spec"]["objects"]] + applied


def test_a_fleet_of_another_size_keeps_the_work(whole: dict[str, Any]):
    changed = story.on_nodes(whole, 3)
    assert kinds(changed).count("Node") == 3
    assert [kind for kind in kinds(changed) if kind != "Node"] == [kind for kind in kinds(whole) if kind != "Node"]
    systems = [entry["usage"]["node"] for entry in changed["spec"]["timeline"] if "usage" in entry]
    assert systems == ["n1", "n2", "n3"]


def test_services_alone_have_no_batch_and_nothing_to_step_back_for(whole: dict[str, Any]):
    alone = story.without(whole, {"Job", "ConfigMap"})
    assert set(kinds(alone)) == {"Node", "Deployment"}
    assert not any("delete" in entry for entry in alone["spec"]["timeline"])


def test_a_step_of_the_fleet_has_its_jobs_only():
    loaded = yaml.safe_load((SCENARIOS / f"{story.FLEET}.yaml").read_text())
    assert list(story.jobs_of(story.with_jobs(loaded, frozenset()))) == []
    assert len(list(story.jobs_of(story.with_jobs(loaded, frozenset({"batch-30"}))))) == 1


def test_the_work_asked_for_is_all_units_times_their_time():
    loaded = yaml.safe_load((SCENARIOS / f"{story.FESTIVAL}.yaml").read_text())
    assert story.asked_milli_s(list(story.jobs_of(loaded))) == 90 * 2_000 * 30


@pytest.mark.parametrize("smallest", [1, 2, 7, 10])
def test_the_search_finds_the_smallest_fleet(smallest: int):
    fleets = story.Fleets(SCENARIOS, {}, lambda _: None)
    fleets._runs = {nodes: story.Run(nodes >= smallest, {}) for nodes in range(1, 11)}
    assert fleets.smallest(10) == smallest


def test_no_fleet_within_the_limit_is_none():
    fleets = story.Fleets(SCENARIOS, {}, lambda _: None)
    fleets._runs = {4: story.Run(enough=False, summary={})}
    assert fleets.smallest(4) is None


def test_one_machine_is_not_enough_for_the_services():
    loaded = yaml.safe_load((SCENARIOS / f"{story.FLEET}.yaml").read_text())
    del loaded["spec"]["expect"]
    services = story.without(loaded, {"Job"})
    assert not story.Fleets(SCENARIOS, services, lambda _: None).on(1).enough


def test_scenarios_that_are_not_there_are_bad_input(tmp_path: Path):
    with pytest.raises(BadInputError, match="--scenarios"):
        story.measure(tmp_path, 4, lambda _: None)
