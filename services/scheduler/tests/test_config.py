import pytest

from cotenant_common.runtime.settings import SettingsError, load_settings
from cotenant_scheduler.arguments import LoadAwareArguments, duration_ms
from cotenant_scheduler.config import SchedulerSettings
from cotenant_scheduler.core.estimate import Aggregation


def test_defaults_score_by_load_and_filter_by_nothing():
    policy = SchedulerSettings().load_aware_scheduling.policy()
    assert policy.thresholds.plain == {}
    assert policy.weights == {"cpu": 1, "memory": 1}
    assert policy.scaling_factors == {"cpu": 85, "memory": 70}
    assert policy.expiration_ms == 180_000


def test_the_reference_names_are_accepted():
    settings = load_settings(
        SchedulerSettings,
        overrides={
            "LoadAwareScheduling": {
                "usageThresholds": {"cpu": 65, "memory": 95},
                "nodeMetricExpirationSeconds": 300,
                "estimatedScalingFactors": {"cpu": 100},
                "aggregated": {"scoreAggregationType": "p95", "scoreAggregatedDuration": "5m"},
            }
        },
    )
    policy = settings.load_aware_scheduling.policy()
    assert policy.thresholds.plain == {"cpu": 65, "memory": 95}
    assert policy.scaling_factors == {"cpu": 100, "memory": 70}
    assert policy.score_aggregation == Aggregation("p95", 300_000)


@pytest.mark.parametrize(
    "arguments",
    [{"usageThresholds": {"disk": 1}}, {"usageThreshold": {"cpu": 1}}, {"aggregated": {"usageAggregationType": "p42"}}],
)
def test_what_cannot_be_meant_is_refused(arguments):
    with pytest.raises(SettingsError, match="LoadAwareScheduling"):
        load_settings(SchedulerSettings, overrides={"LoadAwareScheduling": arguments})


def test_a_dominant_weight_replaces_the_default_weights():
    policy = LoadAwareArguments.model_validate({"dominantResourceWeight": 10}).policy()
    assert (policy.weights, policy.dominant_weight) == ({}, 10)


@pytest.mark.parametrize(
    ("text", "ms"), [("30s", 30_000), ("1m30s", 90_000), ("5m0s", 300_000), (5, 5_000), ("7", 7_000)]
)
def test_durations(text, ms):
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["5 minutes", "", "m"])
def test_bad_durations(text):
    with pytest.raises(ValueError, match="expected a duration"):
        duration_ms(text)


def test_the_yaml_file_uses_the_reference_names_too(tmp_path):
    path = tmp_path / "cotenant.yaml"
    path.write_text("scheduler:\n  seed: 7\n  LoadAwareScheduling: {usageThresholds: {cpu: 50}}\n")
    settings = load_settings(SchedulerSettings, path)
    assert settings.seed == 7
    assert settings.load_aware_scheduling.usage_thresholds == {"cpu": 50}
