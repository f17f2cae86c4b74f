from typing import Any

from cotenant_common.model.quota.spec import parse_quota
from cotenant_common.testing.builders import quota_manifest
from cotenant_gateway.core.validate.objects import check_kind, check_object
from cotenant_gateway.core.validate.quota import Charged, check_quota
from cotenant_gateway.core.validate.schema import Report


def profile(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {"name": "gold"},
        "spec": {"quotaName": "gold-root", **spec},
    }


def errors(manifest: dict[str, Any]) -> list[str]:
    report = Report()
    kind = check_kind(manifest, report)
    if kind is not None:
        check_object(kind, manifest, report)
    return [str(problem) for problem in report.errors]


def test_a_profile_of_a_node_pool_is_clean():
    assert errors(profile(nodeSelector={"pool": "gold"}, resourceRatio="0.9", quotaLabels={"a": "b"})) == []


def test_what_is_wrong_in_a_profile_is_named_with_its_path():
    assert errors(profile(resourceRatio="1.5")) == [
        "spec.resourceRatio: expected a ratio above 0 and at most 1, such as \"0.9\", got '1.5'"
    ]
    (missing,) = errors(profile(quotaName=None))
    assert missing.startswith("spec.quotaName: required")
    (typo,) = errors(profile(nodeSelectr={}))
    assert typo.endswith("unknown field; did you mean 'nodeSelector'?")


def test_a_stop_policy_that_is_none_of_the_three_is_named():
    manifest = quota_manifest("q", maximum={"cpu": 1}, annotations={"cotenant.io/stop-policy": "Stop"})
    (error,) = errors(manifest)
    assert "cotenant.io/stop-policy" in error
    assert "expected one of None, Hold, HoldAndDrain, got 'Stop'" in error


def test_a_max_below_what_is_used_is_allowed_with_a_warning():
    manifest = quota_manifest("q", minimum={"cpu": 1}, maximum={"cpu": 4})
    spec = parse_quota(manifest)[0]
    assert spec is not None
    report = Report()
    check_quota(manifest, [spec], manifest, report, Charged({"cpu": 6000}, pods=2))
    assert report.errors == []
    (warning,) = report.warnings
    assert "6 are in use, more than max 4" in warning.message
