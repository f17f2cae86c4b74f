from cotenant_common.model.qos import PriorityBand, QosClass, check_combination
from cotenant_common.testing.builders import (
    node_inventory,
    node_manifest,
    pod,
    pod_group_manifest,
    pod_manifest,
    quota_manifest,
    spec_key,
    spec_record,
)


def test_each_band_asks_for_its_own_resources() -> None:
    names = {
        band: sorted(pod("p", cpu="1", memory="1Gi", band=band).requests) for band in ("prod", "mid", "batch", "free")
    }
    assert names == {
        "prod": ["cpu", "memory"],
        "mid": ["kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"],
        "batch": ["kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"],
        "free": ["cpu", "memory"],
    }


def test_a_built_pod_is_a_legal_combination() -> None:
    built = pod("p", cpu="1", qos=QosClass.BE, band=PriorityBand.BATCH)
    assert check_combination(built.labelled_qos, built.band, built.requests) == []


def test_a_spec_record_keeps_identity_by_name_and_incarnation() -> None:
    record = spec_record(pod_manifest("web"))
    assert spec_key(record) == "Pod.default.web"
    assert record.uid == spec_record(pod_manifest("web", cpu="2")).uid
    assert record.uid != spec_record(pod_manifest("web"), incarnation=1).uid


def test_nodes_and_quotas() -> None:
    node = node_inventory("n1", cpu="16", memory="32Gi", extra={"nvidia.com/gpu": "2"})
    assert node.allocatable == {"cpu": 16_000, "memory": 32 << 30, "pods": 110, "nvidia.com/gpu": 2}
    assert node.cpus == "0-15"
    assert node_manifest("n1", cpu="16")["status"]["allocatable"]["cpu"] == "16"
    quota = quota_manifest("team-a", minimum={"cpu": "4"}, maximum={"cpu": "8"}, parent="org", allow_lent=False)
    assert quota["spec"] == {"min": {"cpu": "4"}, "max": {"cpu": "8"}}
    assert quota["metadata"]["labels"] == {
        "quota.scheduling.koordinator.sh/parent": "org",
        "quota.scheduling.koordinator.sh/allow-lent-resource": "false",
    }
    assert pod_group_manifest("gang", 3)["spec"] == {"minMember": 3}
