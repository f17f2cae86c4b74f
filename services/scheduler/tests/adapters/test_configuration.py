import pytest

from cotenant_common.testing import builders
from cotenant_scheduler.adapters.configuration import ConfigurationError, profile_arguments
from cotenant_scheduler.arguments import ProfileArguments


def record(text: str, name="koord-scheduler-config"):
    manifest = {"kind": "ConfigMap", "metadata": {"name": name, "namespace": "x"}, "data": {"config": text}}
    return builders.spec_record(manifest)


def load_aware_arguments(records):
    return profile_arguments(records, SETTINGS).load_aware_scheduling


SETTINGS = ProfileArguments()
ARGUMENTS = """
profiles:
- pluginConfig:
  - name: Other
  - name: LoadAwareScheduling
    args: {apiVersion: v1, kind: LoadAwareSchedulingArgs, usageThresholds: {cpu: 70}}
"""


def test_the_plugin_is_found():
    assert load_aware_arguments([record(ARGUMENTS)]).usage_thresholds == {"cpu": 70}


def test_another_config_map_is_not_ours():
    assert load_aware_arguments([record(ARGUMENTS, "else")]) == SETTINGS.load_aware_scheduling


def test_a_configuration_without_the_plugin_leaves_the_settings():
    assert load_aware_arguments([record("profiles: []")]) == SETTINGS.load_aware_scheduling


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[", "data.config is no YAML"),
        ("- a", "expected a map, got list"),
        (ARGUMENTS.replace("cpu: 70", "cpu: many"), "usageThresholds.cpu"),
        (ARGUMENTS.replace("usageThresholds", "usageTresholds"), "usageTresholds"),
    ],
)
def test_what_is_wrong_is_named(text, where):
    with pytest.raises(ConfigurationError, match=where):
        load_aware_arguments([record(text)])


FULL = """
profiles:
- plugins:
    multiPoint: {enabled: [{name: Reservation}, {name: ScarceResourceAvoidance}]}
    score: {enabled: [{name: NodeResourcesFitPlus, weight: 4}], disabled: [{name: TaintToleration}]}
    filter: {disabled: [{name: NodePorts}]}
  pluginConfig:
  - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 2}]}}}
  - {name: NodeResourcesFitPlus, args: {resources: {gpu: {type: MostAllocated, weight: 2}}}}
  - {name: ScarceResourceAvoidance, args: {resources: [gpu]}}
  - {name: SchedulingHint, args: {maxHintNodes: 3}}
"""


def profile_of(text: str):
    return profile_arguments([record(text)], SETTINGS).profile()


def test_a_whole_profile_of_the_reference():
    choice = profile_of(FULL).plugins
    assert choice.weights == {"NodeResourcesFitPlus": 4, "ScarceResourceAvoidance": 1, "TaintToleration": 0}
    assert choice.filters_off == {"NodePorts"}
    assert (choice.fit_strategy, choice.fit_weights) == ("MostAllocated", {"cpu": 2})
    assert choice.fit_plus.resources["gpu"].weight == 2
    assert (choice.scarce, choice.most_hint_nodes) == (("gpu",), 3)


def test_a_star_disables_what_is_not_enabled_by_name():
    enabled = "enabled: [{name: NodeResourcesFit}, {name: NodeUnschedulable}]"
    choice = profile_of(f'profiles: [{{plugins: {{multiPoint: {{{enabled}, disabled: [{{name: "*"}}]}}}}}}]').plugins
    assert "TaintToleration" in choice.filters_off
    assert "NodeResourcesFit" not in choice.filters_off
    assert choice.weights["LoadAwareScheduling"] == 0
    assert choice.weights["NodeResourcesFit"] == 1


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("profiles: [{plugins: {filter: {disabled: [{name: NodeResourcesFit}]}}}]", "NodeResourcesFit stays on"),
        ("profiles: [{plugins: {score: {enabled: [{name: Nobody}]}}}]", "no plugin Nobody is installed"),
        ("profiles: [{plugins: {score: {enabled: [{name: NodeAffinity, weight: -1}]}}}]", "enabled.0.weight"),
        ("profiles: [{pluginConfig: [{name: NodeResourcesFit, args: [1]}]}]", "expected a map, got"),
        ("profiles: 7", "profiles: expected a list of maps, got 7"),
        ("profiles: [{pluginConfig: [3]}]", "pluginConfig: expected a list of maps"),
        (FULL.replace("MostAllocated, resources", "Fullest, resources"), "scoringStrategy.type"),
    ],
)
def test_what_is_wrong_in_a_profile_is_named(text, where):
    with pytest.raises(ValueError, match=where):
        profile_of(text)
