from typing import Any

from cotenant_common.model.quota.spec import ROOT, Problem, QuotaSpec, parse_quota


def _manifest(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"kind": "ElasticQuota", "metadata": {"name": "team-a", "namespace": "ml", **metadata}, "spec": spec}


def _ok(manifest: dict[str, Any]) -> QuotaSpec:
    spec, problems = parse_quota(manifest)
    assert problems == ()
    assert spec is not None
    return spec


def _problem(manifest: dict[str, Any]) -> tuple[str, str]:
    spec, problems = parse_quota(manifest)
    assert spec is None
    assert len(problems) == 1
    return problems[0].path, problems[0].message


def test_reads_amounts_in_canonical_units_and_fills_in_defaults() -> None:
    spec = _ok(_manifest({"min": {"cpu": "500m"}, "max": {"cpu": 2, "memory": "1Gi", "kubernetes.io/batch-cpu": "4k"}}))
    assert spec.min == {"cpu": 500}
    assert spec.max == {"cpu": 2000, "memory": 2**30, "kubernetes.io/batch-cpu": 4000}
    assert spec.shared_weight == spec.max
    assert (spec.parent, spec.is_parent, spec.allow_lent, spec.tree_id) == (ROOT, False, True, "")


def test_labels_and_annotations() -> None:
    prefix = "quota.scheduling.koordinator.sh/"
    spec = _ok(
        _manifest(
            {"max": {"cpu": "10", "memory": "10Gi"}},
            labels={
                prefix + "parent": "dept",
                prefix + "is-parent": "true",
                prefix + "allow-lent-resource": "false",
                prefix + "tree-id": "t1",
            },
            annotations={
                prefix + "namespaces": '["a", "b"]',
                prefix + "shared-weight": '{"cpu": 0.5, "nvidia.com/gpu": 1}',
                prefix + "total-resource": '{"cpu": "64"}',
            },
        )
    )
    assert (spec.parent, spec.is_parent, spec.allow_lent, spec.tree_id) == ("dept", True, False, "t1")
    assert spec.namespaces == ("a", "b")
    assert spec.total_resource == {"cpu": 64_000}
    # Keys follow max: what is missing weighs its max, what max does not name is dropped.
    assert spec.shared_weight == {"cpu": 500, "memory": 10 * 2**30}


def test_weights_of_zero_everywhere_mean_max() -> None:
    annotations = {"quota.scheduling.koordinator.sh/shared-weight": '{"cpu": "0"}'}
    assert _ok(_manifest({"max": {"cpu": "3"}}, annotations=annotations)).shared_weight == {"cpu": 3000}


def test_negative_max_is_refused() -> None:
    path, message = _problem(_manifest({"max": {"cpu": -1}}))
    assert path == "spec.max.cpu"
    assert "not negative" in message


def test_negative_weight_is_refused() -> None:
    annotations = {"quota.scheduling.koordinator.sh/shared-weight": '{"cpu": "-1"}'}
    path, message = _problem(_manifest({"max": {"cpu": "3"}}, annotations=annotations))
    assert path == "metadata.annotations[quota.scheduling.koordinator.sh/shared-weight].cpu"
    assert "not negative" in message


def test_min_needs_a_max_of_the_same_resource() -> None:
    path, message = _problem(_manifest({"min": {"memory": "1Gi"}, "max": {"cpu": "3"}}))
    assert path == "spec.min.memory"
    assert "spec.max has no memory" in message


def test_min_must_not_pass_max() -> None:
    path, message = _problem(_manifest({"min": {"cpu": "12"}, "max": {"cpu": "10"}}))
    assert (path, message) == ("spec.min.cpu", "min must not pass max: 12 > 10")


def test_a_flag_is_true_or_false() -> None:
    path, message = _problem(
        _manifest({"max": {"cpu": "1"}}, labels={"quota.scheduling.koordinator.sh/is-parent": "yes"})
    )
    assert path == "metadata.labels[quota.scheduling.koordinator.sh/is-parent]"
    assert message == 'expected "true" or "false", got \'yes\''


def test_every_malformed_field_is_named_at_once() -> None:
    spec, problems = parse_quota(
        _manifest(
            {"min": {"cpu": "one"}, "max": ["cpu"]},
            annotations={"quota.scheduling.koordinator.sh/namespaces": "a,b"},
            labels={"quota.scheduling.koordinator.sh/tree-id": "a_b"},
        )
    )
    assert spec is None
    assert [problem.path for problem in problems] == [
        "spec.max",
        "spec.min.cpu",
        "metadata.annotations[quota.scheduling.koordinator.sh/namespaces]",
        "metadata.labels[quota.scheduling.koordinator.sh/tree-id]",
    ]


def test_annotations_that_no_message_could_carry_are_problems() -> None:
    deep = {"quota.scheduling.koordinator.sh/namespaces": "[" * 100_000}
    assert "expected a list of names" in _problem(_manifest({"max": {"cpu": "1"}}, annotations=deep))[1]
    large = {"quota.scheduling.koordinator.sh/total-resource": '{"cpu": "1e300"}'}
    assert "expected at most" in _problem(_manifest({"max": {"cpu": "1"}}, annotations=large))[1]


def test_a_stop_policy_is_one_of_three_words() -> None:
    def read(text: str) -> tuple[QuotaSpec | None, tuple[Problem, ...]]:
        annotations = {"cotenant.io/stop-policy": text}
        return parse_quota({"metadata": {"name": "a", "annotations": annotations}, "spec": {"max": {"cpu": "1"}}})

    for text, policy in (("", "None"), ("None", "None"), ("Hold", "Hold"), ("HoldAndDrain", "HoldAndDrain")):
        spec, problems = read(text)
        assert (problems, spec and spec.stop_policy) == ((), policy)
    spec, problems = read("hold")
    assert spec is None
    assert "expected one of None, Hold, HoldAndDrain, got 'hold'" in problems[0].message
