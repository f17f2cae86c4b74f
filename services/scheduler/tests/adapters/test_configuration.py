import pytest

from cotenant_common.testing import builders
from cotenant_scheduler.adapters.configuration import ConfigurationError, load_aware_arguments


def record(text: str, name="koord-scheduler-config"):
    manifest = {"kind": "ConfigMap", "metadata": {"name": name, "namespace": "x"}, "data": {"config": text}}
    return builders.spec_record(manifest)


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
    assert load_aware_arguments([record(ARGUMENTS, "else")]) is None


def test_a_configuration_without_the_plugin_leaves_the_settings():
    assert load_aware_arguments([record("profiles: []")]) is None


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
