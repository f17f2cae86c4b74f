from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.model import labels as names
from cotenant_common.testing.builders import pod_manifest
from cotenant_gateway.core.profiles import PriorityClass, Profile, ProfileError, merge_patch, mutate

CLASSES = {"koord-batch": PriorityClass(5000), "koord-prod": PriorityClass(9000, "Never")}


def profile(name: str = "p", *, skip: bool = False, **spec: Any) -> Profile:
    return Profile(name, spec, skip)


def applied(*profiles: Profile, **pod: Any) -> dict[str, Any]:
    return mutate(pod_manifest("a", **pod), profiles, {}, CLASSES).manifest


def section(pod: dict[str, Any]) -> dict[str, Any]:
    return pod["spec"]["containers"][0]["resources"]


def test_profiles_apply_in_name_order_and_the_later_wins():
    pod = applied(profile("b", qosClass="BE"), profile("a", qosClass="LS"))
    assert pod["metadata"]["labels"][names.QOS_CLASS] == "BE"


def test_every_part_of_a_profile():
    pod = applied(
        profile(
            labels={"l": "1"},
            annotations={"x": "2"},
            labelKeysMapping={"l": "copy", "none": "empty"},
            annotationKeysMapping={"x": "y"},
            labelSuffixes={"l": "-end", "absent": "-end"},
            schedulerName="koord-scheduler",
            qosClass="BE",
            priorityClassName="koord-batch",
            koordinatorPriority=5300,
            patch={"spec": {"terminationGracePeriodSeconds": 7}},
        )
    )
    assert pod["metadata"]["labels"] == {
        "l": "1-end", "copy": "1", "empty": "", names.QOS_CLASS: "BE", names.PRIORITY: "5300",
    }  # fmt: skip
    assert pod["metadata"]["annotations"] == {"x": "2", "y": "2"}
    spec = pod["spec"]
    assert (spec["schedulerName"], spec["priority"], spec["terminationGracePeriodSeconds"]) == (
        "koord-scheduler",
        5000,
        7,
    )


def test_a_missing_priority_class_is_an_error():
    with pytest.raises(ProfileError, match="'gold', which does not exist"):
        applied(profile(priorityClassName="gold"))


def test_batch_resources_are_translated_exactly():
    pod = applied(profile(priorityClassName="koord-batch", qosClass="BE"), requests={"cpu": "1", "memory": "3456Mi"})
    assert section(pod)["requests"] == {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "3456Mi"}


def test_a_limit_without_a_request_becomes_the_request():
    pod = applied(profile(priorityClassName="koord-batch", qosClass="BE"), limits={"cpu": "500m"})
    assert section(pod) == {
        "requests": {"kubernetes.io/batch-cpu": "500"},
        "limits": {"kubernetes.io/batch-cpu": "500"},
    }


def test_a_profile_that_probability_skips_still_translates():
    pod = applied(profile(probability=0, labels={"l": "1"}), priority=5500, qos="BE", requests={"cpu": "1"})
    assert "l" not in pod["metadata"]["labels"]
    assert section(pod)["requests"] == {"kubernetes.io/batch-cpu": "1000"}


def test_the_skip_annotation_of_any_match_keeps_native_resources():
    batch = profile("a", priorityClassName="koord-batch", qosClass="BE")
    pod = applied(batch, profile("b", skip=True), requests={"cpu": "1"})
    assert section(pod)["requests"] == {"cpu": "1"}


def test_prod_and_unmatched_pods_are_not_translated():
    assert section(applied(profile(priorityClassName="koord-prod"), requests={"cpu": "1"}))["requests"] == {"cpu": "1"}
    other = profile(selector={"matchLabels": {"no": "match"}})
    assert section(applied(other, priority=5500, qos="BE", requests={"cpu": "1"}))["requests"] == {"cpu": "1"}


def test_selectors_look_at_the_pod_as_it_came():
    first = profile("a", labels={"made": "here"})
    second = profile("b", selector={"matchLabels": {"made": "here"}}, annotations={"x": "1"})
    assert (
        "annotations" not in applied(first, second)["metadata"] or not applied(first, second)["metadata"]["annotations"]
    )


def test_namespaces_are_selected_by_their_labels():
    chosen = profile(namespaceSelector={"matchLabels": {"batch": "yes"}}, labels={"l": "1"})
    assert mutate(pod_manifest("a"), [chosen], {"batch": "yes"}, CLASSES).applied == ("p",)
    assert mutate(pod_manifest("a"), [chosen], {}, CLASSES).matched == ()


def test_probability_is_the_same_every_time_and_about_right():
    half = profile(probability="50%", labels={"l": "1"})
    chosen = [bool(mutate(pod_manifest(f"pod-{n}"), [half], {}, CLASSES).applied) for n in range(400)]
    assert chosen == [bool(mutate(pod_manifest(f"pod-{n}"), [half], {}, CLASSES).applied) for n in range(400)]
    assert 140 < sum(chosen) < 260


def test_patches_merge_containers_by_name_and_null_deletes():
    pod = pod_manifest("a", requests={"cpu": "1"})
    patch = {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}, {"name": "side"}]}}
    merged = merge_patch(pod, patch)
    assert [c["name"] for c in merged["spec"]["containers"]] == ["main", "side"]
    assert merged["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
    assert "labels" not in merge_patch({"labels": {}}, {"labels": None})
    with pytest.raises(ProfileError, match="directives"):
        merge_patch(pod, {"spec": {"$patch": "replace"}})


@given(st.integers(min_value=1, max_value=10**6))
def test_mutation_leaves_its_input_alone(milli):
    original = pod_manifest("a", requests={"cpu": f"{milli}m"})
    copy = pod_manifest("a", requests={"cpu": f"{milli}m"})
    result = mutate(original, [profile(priorityClassName="koord-batch", qosClass="BE")], {}, CLASSES).manifest
    assert original == copy
    assert section(result)["requests"] == {"kubernetes.io/batch-cpu": str(milli)}


@pytest.mark.parametrize(
    "fields",
    [
        {"patch": {"spec": {"containers": "x"}}},
        {"patch": {"spec": {"containers": None}}},
        {"patch": {"spec": None}},
        {"patch": {"metadata": {"name": "other"}}},
        {"patch": {"metadata": {"namespace": "other"}}},
        {"patch": {"metadata": None}},
        {"patch": {"metadata": {"labels": {"a": "not a label"}}}},
        {"patch": {"spec": {"nodeName": "n1"}}},
        {"patch": {"spec": {"priority": "high"}}},
        {"labels": {"l": "1"}, "labelSuffixes": {"l": " end"}},
    ],
)
def test_what_a_profile_made_of_a_pod_is_judged_again(fields: dict[str, Any]):
    with pytest.raises(ProfileError, match="with profile p applied"):
        applied(profile(**fields), qos="BE", band="batch")


def test_patches_of_two_profiles_are_judged_together():
    with pytest.raises(ProfileError):
        applied(profile("a", patch={"metadata": {"labels": "x"}}), profile("b", labels={"l": "1"}))


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda i: (
            st.lists(i, max_size=2)
            | st.dictionaries(
                st.sampled_from(["spec", "metadata", "containers", "labels", "name", "resources", "limits", "cpu"]),
                i,
                max_size=3,
            )
        ),
    )
)
def test_any_patch_gives_a_pod_or_a_profile_error(patch: Any):
    try:
        pod = applied(profile(patch=patch if isinstance(patch, dict) else {"spec": patch}), qos="BE", band="batch")
    except ProfileError:
        return
    assert pod["metadata"]["name"] == "a"
