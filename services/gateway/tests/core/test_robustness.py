"""Whatever comes in is judged, never raised."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_common.testing.builders import node_manifest, pod_manifest, quota_manifest
from cotenant_gateway.core.catalog import Catalog
from cotenant_gateway.core.plan import Applying, plan
from cotenant_gateway.core.slo_config import SloConfig, parse
from cotenant_gateway.core.yaml_source import SourceError, from_data, load
from cotenant_gateway.testing import controller

SAMPLES: list[dict[str, Any]] = [
    pod_manifest("a", cpu="1", memory="1Gi", qos="BE", band="batch", spec={"tolerations": [{"operator": "Exists"}]}),
    dict(controller("Deployment", replicas=2, selector={"matchLabels": {"app": "w"}}).manifest),
    dict(controller("Job", completions=2).manifest),
    node_manifest("n1"),
    quota_manifest("q", minimum={"cpu": "1"}, maximum={"cpu": "2"}),
    {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": "p"},
        "spec": {"selector": {}, "probability": "50%", "priorityClassName": "koord-batch", "patch": {"spec": {}}},
    },
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "c"}, "value": 5},
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": "50%", "selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
    },
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}},
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, entry in items for place in [(*path, key), *places(entry, (*path, key))]]


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    manifest = copy.deepcopy(draw(st.sampled_from(SAMPLES)))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(places(manifest)))
        parent = manifest
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = draw(JSON)
        if not places(manifest):
            break
    return manifest


@settings(max_examples=150)
@given(st.lists(damaged(), min_size=1, max_size=3))
def test_a_damaged_manifest_is_an_error_or_accepted_never_a_crash(manifests):
    planned = plan(from_data(manifests), Applying({}.get, Catalog(), 0, "s"))
    assert bool(planned.faults) or all(item.action == "created" for item in planned.items)
    assert all("\n" not in str(fault) for fault in planned.faults)


@given(damaged())
def test_what_is_accepted_can_be_applied_over_itself(manifest):
    first = plan(from_data([manifest]), Applying({}.get, Catalog(), 0, "s"))
    known = {change.spec.key: change.spec for change in first.changes}
    again = plan(from_data([manifest]), Applying(known.get, Catalog(known.values()), 0, "s2"))
    if not first.faults:
        assert [item.action for item in again.items] == ["unchanged"]


@settings(max_examples=100)
@given(st.text(max_size=60))
def test_any_text_is_objects_or_a_source_error(text):
    try:
        load(text)
    except SourceError as error:
        assert str(error)  # noqa: PT017 - either outcome is fine


@settings(max_examples=100)
@given(
    st.dictionaries(st.sampled_from(["clusterStrategy", "nodeStrategies", "nodeConfigs", "enable"]), JSON, max_size=3)
)
def test_any_json_in_the_slo_config_is_judged(value):
    text = json.dumps(value)
    parse({"colocation-config": text, "resource-threshold-config": text, "resource-qos-config": text}, SloConfig())
