import pytest

from cotenant_common.testing import builders
from cotenant_scheduler.adapters import facts
from cotenant_scheduler.adapters.requests import RequestReader
from cotenant_scheduler.core.estimate import LoadPolicy

POLICY = LoadPolicy(allow_customize=True)
FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"


def record(name="a", uid="u", created_ms=0, owner=None, **fields):
    manifest = builders.pod_manifest(name, **fields)
    if owner:
        manifest["metadata"]["ownerReferences"] = [{"kind": owner, "name": "o", "controller": True}]
    return builders.spec_record(manifest, uid=uid, created_ms=created_ms)


def test_pods_of_one_template_share_their_shape_and_nothing_of_their_own():
    reader = RequestReader(POLICY)
    first = reader.read(record("a", "ua", 1, cpu="1"), 7)
    second = reader.read(record("b", "ub", 2, cpu="1"), 8)
    assert second.shape is first.shape
    assert (second.uid, second.name, second.created_ms, second.spec_revision) == ("ub", "b", 2, 8)


@pytest.mark.parametrize(
    "change",
    [
        {"cpu": "2"},
        {"namespace": "other"},
        {"priority": 9100},
        {"quota": "q"},
        {"band": "batch", "qos": "BE"},
        {"extra_labels": {"x": "y"}},
        {"annotations": {FACTORS: '{"cpu": 10}'}},
        {"owner": "DaemonSet"},
        {"spec": {"nodeSelector": {"disk": "ssd"}}},
        {"spec": {"schedulingGates": [{"name": "g"}]}},
    ],
)
def test_whatever_matters_is_read_anew(change):
    reader = RequestReader(POLICY)
    reader.read(record(), 1)
    changed = record(**change)
    assert reader.read(changed, 2) == facts.pod_request(changed, 2, POLICY)
    assert reader.read(changed, 3) == facts.pod_request(changed, 3, POLICY)


def test_what_cannot_be_read_is_not_kept():
    reader = RequestReader(POLICY)
    broken = record(cpu="many")
    assert reader.read(broken, 1) is None
    assert reader.read(broken, 2) is None
