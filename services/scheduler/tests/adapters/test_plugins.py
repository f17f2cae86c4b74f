"""The example plugin, found by its entry point as if it were installed, without touching the environment."""

import sys
import tomllib
from pathlib import Path

import pytest

from cotenant_common.model.reasons import ReasonCode
from cotenant_common.runtime.settings import load_settings
from cotenant_scheduler.adapters import plugins
from cotenant_scheduler.config import SchedulerSettings
from cotenant_scheduler.core.profile import Outside

EXAMPLE = Path(__file__).parents[4] / "examples" / "scheduler-plugin"
MODULE = "cotenant_example_plugin"
ENABLED = {"multiPoint": {"enabled": [{"name": "RackPower", "weight": 7}]}}


@pytest.fixture
def example(tmp_path, monkeypatch):
    """A dist-info beside the sources is all that an installation adds."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    directory = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    directory.mkdir()
    (directory / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    (group,) = project["entry-points"]
    points = "".join(f"{name} = {target}\n" for name, target in project["entry-points"][group].items())
    (directory / "entry_points.txt").write_text(f"[{group}]\n{points}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return plugins.installed()


def world_with(make_world, points, **arguments):
    outside = plugins.build([Outside("RackPower", 7, arguments)], points)
    world = make_world(outside=outside)
    world.node("poor", cpu="64", labels={"power.example.com/spare-watts": "100"})
    world.node("rich", cpu="4", labels={"power.example.com/spare-watts": "1000"})
    return world


def test_it_scores(make_world, example):
    world = world_with(make_world, example)
    world.submit("a", cpu="1")
    world.run()
    assert world.where("a") == "rich"


def test_it_filters_by_an_annotation_and_gives_its_reason(make_world, example):
    world = world_with(make_world, example)
    world.submit("a", cpu="1", annotations={"power.example.com/watts": "5000"})
    world.run()
    verdict = world.verdict("a")
    assert verdict.reason is ReasonCode.PLUGIN_REFUSED
    assert "needs 5000 W" in verdict.message
    assert verdict.topics == ("nodes", "RackPower")


def test_a_node_that_changes_wakes_those_it_refused(make_world, example):
    world = world_with(make_world, example)
    world.submit("a", cpu="1", annotations={"power.example.com/watts": "5000"})
    world.run()
    world.node("rich", cpu="4", labels={"power.example.com/spare-watts": "6000"})
    assert world.placed(world.run()) == ["a"]


def test_the_settings_ask_for_it_with_weight_and_arguments(example):
    overrides = {"plugins": ENABLED, "pluginConfig": {"RackPower": {"fullWatts": 50}}}
    settings = load_settings(SchedulerSettings, overrides=overrides)
    profile = settings.arguments().profile(example)
    (plugin,) = plugins.build(profile.plugins.outside, example)
    assert (plugin.weight, plugin.full_watts) == (7, 50)


def test_what_is_installed_and_not_asked_for_is_not_even_imported(example):
    wanted = SchedulerSettings().arguments().profile(example).plugins.outside
    assert wanted == ()
    assert plugins.build(wanted, example) == []
    assert MODULE not in sys.modules


def test_a_plugin_that_nobody_installed_is_named():
    settings = load_settings(SchedulerSettings, overrides={"plugins": ENABLED})
    with pytest.raises(ValueError, match=r"no plugin RackPower is installed; there are .*NodeResourcesFit"):
        settings.arguments().profile(())


def test_arguments_it_refuses_are_reported_with_its_name(example):
    with pytest.raises(plugins.PluginError, match=r"RackPower.*fullWatts: expected a number above 0"):
        plugins.build([Outside("RackPower", None, {"fullWatts": 0})], example)
