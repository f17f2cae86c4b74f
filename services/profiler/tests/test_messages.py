import pytest

from cotenant_common.contracts.messages.state import PolicyRecord
from cotenant_common.contracts.messages.telemetry import NodeUsage, PodUsage, Usage
from cotenant_common.model.qos import PriorityBand, QosClass
from cotenant_common.testing import builders
from cotenant_profiler.adapters import messages


def _node(annotation: str) -> object:
    manifest = builders.node_manifest("n1", annotations={"node.koordinator.sh/reservation": annotation})
    return messages.machine_of(builders.node_inventory("n1"), builders.spec_record(manifest)).reservation


def test_what_was_not_measured_is_left_out() -> None:
    usage = NodeUsage(
        node="n1",
        at_ms=5,
        interval_ms=1000,
        usage=Usage(memory_bytes=7),
        system=Usage(cpu_milli=0, memory_bytes=1),
        pods=[PodUsage(uid="u", namespace="d", name="p", qos="BE", band="batch", cpu_milli=3)],
    )
    sample = messages.Samples().read(usage)
    assert (sample.node, sample.system) == ({"memory": 7}, {"cpu": 0, "memory": 1})
    assert (sample.pods["u"].band, sample.pods["u"].usage) == (PriorityBand.BATCH, {"cpu": 3})


@pytest.mark.parametrize(
    ("text", "band"),
    [("koord-mid", PriorityBand.MID), ("mid", PriorityBand.MID), ("none", PriorityBand.NONE), ("", PriorityBand.NONE)],
)
def test_bands_in_both_spellings(text: str, band: PriorityBand) -> None:
    assert messages.band_of(text) is band


def test_a_mid_pod_counts_in_native_cores() -> None:
    record = builders.spec_record(builders.pod_manifest("p", cpu="2", memory="1Gi", band="mid", qos="BE"), uid="u")
    facts = messages.pod_facts(record)
    assert facts is not None
    assert (facts.band, facts.qos, facts.request) == (PriorityBand.MID, QosClass.BE, {"cpu": 2000, "memory": 2**30})


def test_an_ended_pod_is_no_fact() -> None:
    assert messages.pod_facts(builders.spec_record(builders.pod_manifest("p"), terminal_ms=3)) is None


def test_reservations() -> None:
    assert _node('{"resources": {"cpu": "1500m", "memory": "1Gi"}}') == {"cpu": 1500, "memory": 2**30}
    assert _node('{"resources": {"cpu": "9"}, "reservedCPUs": "0-3,8"}') == {"cpu": 5000}
    with pytest.raises(ValueError, match="expected resources and reservedCPUs"):
        _node('["0-3"]')


def test_normalisation_is_exact() -> None:
    manifest = builders.node_manifest("n1", annotations={"node.koordinator.sh/cpu-normalization-ratio": "1.15"})
    machine = messages.machine_of(builders.node_inventory("n1"), builders.spec_record(manifest))
    assert machine.normalization_percent == 115


def test_the_rendered_policy_holds_and_its_absence_means_defaults() -> None:
    idle = builders.node_inventory("n1", idle_class=True)
    assert messages.node_strategy(None, idle).reclaim_percent == {"cpu": 95, "memory": 95}
    policy = PolicyRecord(
        node="n1",
        slo={"resourceUsedThresholdWithBE": {"memoryEvictThresholdPercent": 70}},
        colocation={"cpuReclaimThresholdPercent": 80},
    )
    assert messages.node_strategy(policy, idle).reclaim_percent == {"cpu": 80, "memory": 65}


def test_pods_that_are_reported_anew_are_read_anew() -> None:
    usage = NodeUsage(node="n", at_ms=1, interval_ms=1, usage=Usage(), system=Usage(), pods=[])
    pod = PodUsage(uid="u", namespace="d", name="p", qos="BE", band="batch", cpu_milli=3)
    samples = messages.Samples()
    first = samples.read(usage.model_copy(update={"pods": [pod]}))
    again = samples.read(usage.model_copy(update={"pods": [pod.model_copy(update={"cpu_milli": 4})], "at_ms": 2}))
    assert (first.pods["u"].usage, again.pods["u"].usage) == ({"cpu": 3}, {"cpu": 4})
