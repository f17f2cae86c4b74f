import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.model import labels
from cotenant_gateway.core import slo_config
from cotenant_gateway.core.policy_fields import SECTIONS, Profile
from cotenant_gateway.core.slo_config import (
    NodeFacts,
    SloConfig,
    check,
    defaults_markdown,
    parse,
    ratio_percent,
    render,
)


def config(**sections: Any) -> SloConfig:
    data = {name.replace("_", "-"): json.dumps(value) for name, value in sections.items()}
    parsed, problems = parse(data, SloConfig())
    assert [p.message for p in problems] == []
    return parsed


def node(idle_class: bool = False, node_labels: dict[str, str] | None = None, **annotations: str) -> NodeFacts:
    return NodeFacts("n1", node_labels or {}, annotations, idle_class)


THRESHOLD = "slo.resourceUsedThresholdWithBE"


def test_the_defaults_depend_on_the_idle_class():
    with_idle, without = render(node(True), SloConfig()), render(node(False), SloConfig())
    assert with_idle.slo["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 95
    assert without.slo["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 65
    assert (with_idle.colocation["cpuReclaimThresholdPercent"], without.colocation["cpuReclaimThresholdPercent"]) == (
        95,
        60,
    )
    assert with_idle.slo["resourceQOSStrategy"]["beClass"]["cpuQOS"]["schedIdle"] == 1
    assert without.slo["resourceQOSStrategy"]["beClass"]["cpuQOS"]["schedIdle"] == 0


def test_enforcement_is_on_and_what_is_sold_stays_under_the_eviction_line():
    policy = render(node(True), SloConfig())
    assert policy.slo["resourceUsedThresholdWithBE"]["enable"] is True
    assert policy.colocation["enable"] is True
    line = policy.slo["resourceUsedThresholdWithBE"]["memoryEvictThresholdPercent"]
    assert policy.colocation["memoryReclaimThresholdPercent"] < line


def test_conservative_takes_the_reference_and_observe_only_says_so():
    conservative = render(node(True), SloConfig(), Profile.CONSERVATIVE)
    assert conservative.colocation["memoryReclaimThresholdPercent"] == 65
    assert conservative.slo["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 65
    observe = render(node(True), SloConfig(), Profile.OBSERVE)
    assert observe.observe
    assert observe.slo == render(node(True), SloConfig()).slo


def test_the_profile_can_be_set_in_the_config_map():
    parsed, problems = parse({"policy-profile": "conservative"}, SloConfig())
    assert problems == []
    assert render(node(True), parsed).colocation["cpuReclaimThresholdPercent"] == 60
    assert check({"policy-profile": "brave"})[0].fatal


def test_unset_stays_absent():
    assert "memoryEvictLowerPercent" not in render(node(), SloConfig()).slo["resourceUsedThresholdWithBE"]


def test_layers_overlay_each_other_and_say_where_each_value_came_from():
    parsed = config(
        resource_threshold_config={
            "clusterStrategy": {"cpuSuppressThresholdPercent": 50, "memoryEvictThresholdPercent": 0},
            "nodeStrategies": [
                {"name": "gpu", "nodeSelector": {"matchLabels": {"gpu": "yes"}}, "cpuSuppressThresholdPercent": 40},
                {"name": "late", "nodeSelector": {"matchLabels": {"gpu": "yes"}}, "cpuSuppressThresholdPercent": 30},
            ],
        }
    )
    policy = render(node(node_labels={"gpu": "yes"}), parsed)
    values = policy.slo["resourceUsedThresholdWithBE"]
    assert (values["cpuSuppressThresholdPercent"], values["memoryEvictThresholdPercent"]) == (40, 0)
    assert policy.sources[f"{THRESHOLD.removeprefix('slo.')}.cpuSuppressThresholdPercent"] == "gpu"
    assert policy.sources["resourceUsedThresholdWithBE.memoryEvictThresholdPercent"] == "cluster"
    assert policy.sources["resourceUsedThresholdWithBE.enable"] == "default"
    assert render(node(), parsed).slo["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 50


def test_the_colocation_strategy_stands_at_the_top_of_its_key():
    parsed = config(
        colocation_config={
            "cpuReclaimThresholdPercent": 70,
            "nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": "b"}}, "enable": False}],
        }
    )
    assert render(node(), parsed).colocation["cpuReclaimThresholdPercent"] == 70
    assert render(node(node_labels={"a": "b"}), parsed).colocation["enable"] is False


@pytest.mark.parametrize(
    ("key", "text", "part"),
    [
        ("colocation-config", "{", "not valid JSON"),
        ("colocation-config", "[]", "expected a JSON object"),
        ("colocation-config", '{"cpuReclaimTreshold": 1}', "unknown field; did you mean 'cpuReclaimThresholdPercent'?"),
        ("colocation-config", '{"degradeTimeMinutes": 0}', "degradeTimeMinutes: expected 1 to more, got 0"),
        ("colocation-config", '{"resourceDiffThreshold": 0}', "above 0 and at most 1"),
        ("colocation-config", '{"nodeConfigs": [{"enable": true}]}', "nodeConfigs[0].nodeSelector: required"),
        ("resource-threshold-config", '{"cpuSuppressThresholdPercent": 5}', "unknown field"),
        ("resource-threshold-config", '{"clusterStrategy": {"cpuSuppressPolicy": "x"}}', "expected cpuset or cfsQuota"),
        ("resource-qos-config", '{"clusterStrategy": {"beClass": {"cpuQOS": {"schedIdle": 2}}}}', "expected 0 to 1"),
        ("cpu-burst-config", '{"clusterStrategy": {"policy": true}}', "expected none or cpuBurstOnly"),
        ("host-application-config", '{"applications": [{}]}', "objects with a name"),
    ],
)
def test_what_cannot_be_used_is_named(key, text, part):
    problems = check({key: text})
    assert any(part in p.message and p.key == key and p.fatal for p in problems), problems


def test_a_key_that_cannot_be_read_keeps_its_last_value_and_a_missing_one_resets():
    good = config(colocation_config={"cpuReclaimThresholdPercent": 70})
    kept, problems = parse({"colocation-config": "{"}, good)
    assert kept.sections == good.sections
    assert problems
    reset, problems = parse({}, good)
    assert render(node(), reset).colocation["cpuReclaimThresholdPercent"] == 60
    assert problems == []


def test_what_nothing_acts_on_is_a_warning():
    (problem,) = check({"cpu-normalization-config": "{}"})
    assert not problem.fatal


def test_disabling_a_class_section_undoes_its_values():
    parsed = config(resource_qos_config={"clusterStrategy": {"beClass": {"resctrlQOS": {"enable": False}}}})
    policy = render(node(), parsed)
    be = policy.slo["resourceQOSStrategy"]["beClass"]
    assert be["resctrlQOS"]["catRangeEndPercent"] == 100
    assert policy.sources["resourceQOSStrategy.beClass.resctrlQOS.catRangeEndPercent"] == "cluster: enable is false"
    assert be["memoryQOS"]["wmarkRatio"] == 0


def test_a_nodes_own_annotation_and_labels_win():
    facts = NodeFacts(
        "n1",
        {labels.CPU_RECLAIM_RATIO: "0.57", labels.MEMORY_RECLAIM_RATIO: "-1"},
        {labels.COLOCATION_STRATEGY: '{"degradeTimeMinutes": 3, "cpuReclaimThresholdPercent": 1, "nonsense": 1}'},
    )
    policy = render(facts, SloConfig())
    assert policy.colocation["degradeTimeMinutes"] == 3
    assert policy.colocation["cpuReclaimThresholdPercent"] == 57
    assert policy.colocation["memoryReclaimThresholdPercent"] == 85
    assert "nonsense" not in policy.colocation
    assert policy.sources["colocation.cpuReclaimThresholdPercent"] == f"label {labels.CPU_RECLAIM_RATIO}"


def test_host_applications_are_passed_on():
    parsed = config(host_application_config={"applications": [{"name": "nginx", "qos": "LS"}]})
    assert render(node(), parsed).slo["hostApplications"] == [{"name": "nginx", "qos": "LS"}]


@given(st.integers(min_value=0, max_value=200))
def test_ratios_are_cut_exactly(percent):
    assert ratio_percent(f"{percent / 100:.2f}") == percent


@pytest.mark.parametrize("text", [None, "", "abc", "-0.1", "nan", "inf"])
def test_what_is_no_ratio_is_ignored(text):
    assert ratio_percent(text) is None


@pytest.mark.parametrize("section", SECTIONS, ids=lambda s: s.key)
@pytest.mark.parametrize("profile", list(Profile))
def test_every_default_passes_its_own_check(section, profile):
    for f in section.fields:
        for idle in (True, False):
            value = f.default(profile, idle_class=idle)
            assert value is None or f.check.problem(value) is None, f.path


def test_the_table_of_defaults_names_every_field():
    text = defaults_markdown()
    assert all(f"`{'.'.join(f.path)}`" in text for section in SECTIONS for f in section.fields)
    assert slo_config.is_slo_config("koordinator-system", "slo-controller-config")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        '{"a":' * 500 + "1" + "}" * 500,
        '{"blkioQOS": NaN}',
        '{"beClass": 1e999}',
        '{"x": ' + "9" * 30 + "}",
        '{"x": "\\ud800"}',
    ],
)
def test_json_that_could_not_be_passed_on_is_one_problem(text: str):
    for key in ("colocation-config", "resource-qos-config", "host-application-config"):
        assert [p.key for p in check({key: text}) if p.fatal] == [key]


@pytest.mark.parametrize("ratio", ["1e9999", "1e999999999", "inf", "nan", "-1"])
def test_a_ratio_beyond_sense_is_none(ratio: str):
    assert ratio_percent(ratio) is None
