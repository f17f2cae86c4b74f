from fractions import Fraction
from typing import Any

import pytest

from cotenant_common.model import labels
from cotenant_common.model.quota.profile import QuotaProfile, fnv64a, parse_profile


def _manifest(annotations: dict[str, str] | None = None, tree: str | None = None, **spec: Any) -> dict[str, Any]:
    given = {} if tree is None else {labels.QUOTA_TREE_ID: tree}
    return {
        "metadata": {"name": "p", "namespace": "ops", "labels": given, "annotations": annotations or {}},
        "spec": {"quotaName": "root", **spec},
    }


def _read(**spec: Any) -> QuotaProfile:
    found, problems = parse_profile(_manifest(**spec))
    assert problems == ()
    assert found is not None
    return found


def test_what_is_left_out_means_every_node_in_full() -> None:
    found = _read()
    assert (found.ratio, found.resource_keys) == (Fraction(1), ("cpu", "memory"))
    assert found.selects({})
    assert not _read(nodeSelector={"a": "b"}).selects({"a": "c"})


def test_the_tree_has_the_given_id_or_one_made_of_the_name() -> None:
    assert _read(tree="gold").tree_id == "gold"
    assert _read(quotaLabels={labels.QUOTA_TREE_ID: "silver"}).tree_id == "silver"
    assert _read().tree_id == str(fnv64a("ops/p"))


def test_the_hash_is_fnv_1a() -> None:
    assert fnv64a("") == 0xCBF29CE484222325
    assert fnv64a("a") == 0xAF63DC4C8601EC8C


@pytest.mark.parametrize("text", ["0.9", "1", "1.0", ".5", "0.000000001"])
def test_a_ratio_is_read_exactly(text: str) -> None:
    assert _read(resourceRatio=text).ratio == Fraction(text)


@pytest.mark.parametrize("text", ["0", "1.1", "-1", "90%", "1e-1", "half", "0.0"])
def test_a_ratio_outside_of_its_bounds_is_named(text: str) -> None:
    found, problems = parse_profile(_manifest(resourceRatio=text))
    assert found is None
    assert [problem.path for problem in problems] == ["spec.resourceRatio"]
    assert text in problems[0].message


@pytest.mark.parametrize("text", ['["cpu", "nvidia.com/gpu"]', "cpu,nvidia.com/gpu", "nvidia.com/gpu, cpu"])
def test_other_resources_can_be_named(text: str) -> None:
    assert _read(annotations={labels.QUOTA_RESOURCE_KEYS: text}).resource_keys == ("cpu", "nvidia.com/gpu")


def test_every_problem_is_told_at_once() -> None:
    manifest = _manifest(annotations={labels.QUOTA_RESOURCE_KEYS: "cpu,,"}, quotaName="", resourceRatio="2")
    assert [problem.path for problem in parse_profile(manifest)[1]] == [
        "spec.resourceRatio",
        "spec.quotaName",
        f"metadata.annotations[{labels.QUOTA_RESOURCE_KEYS}]",
    ]
    assert parse_profile(_manifest(quotaName="koordinator-root-quota"))[0] is None
