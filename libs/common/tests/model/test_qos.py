import pytest

from cotenant_common.model import labels
from cotenant_common.model.qos import (
    BANDS,
    DEFAULT_VALUE,
    SHIPPED_PRIORITY_CLASSES,
    KubernetesQos,
    PriorityBand,
    QosClass,
    band_of_value,
    check_combination,
    effective_band,
    effective_qos,
    kubernetes_qos,
    labelled_qos,
    priority_value,
    raw_band,
    sub_priority,
)

GUARANTEED = ({"cpu": 1000, "memory": 1}, {"cpu": 1000, "memory": 1})
BURSTABLE = ({"cpu": 500}, {"cpu": 1000})


def test_bands_have_gaps_and_their_edges_belong_to_them() -> None:
    for band, (low, high) in BANDS.items():
        assert [band_of_value(value) for value in (low, high)] == [band, band]
        assert band_of_value(low - 1) is band_of_value(high + 1) is PriorityBand.NONE
        assert low <= DEFAULT_VALUE[band] <= high
        assert SHIPPED_PRIORITY_CLASSES[band.value] == low
    assert band_of_value(None) is PriorityBand.NONE


@pytest.mark.parametrize(
    ("pod_labels", "priority", "band"),
    [
        ({}, 9499, PriorityBand.PROD),
        ({labels.PRIORITY_CLASS: "koord-prod"}, 5499, PriorityBand.PROD),
        ({labels.PRIORITY_CLASS: "unknown"}, 5499, PriorityBand.NONE),
        ({}, None, PriorityBand.NONE),
        ({}, 4500, PriorityBand.NONE),
    ],
)
def test_the_raw_band_is_the_label_before_the_number(
    pod_labels: dict[str, str], priority: int | None, band: PriorityBand
) -> None:
    assert raw_band(pod_labels, priority) is band


@pytest.mark.parametrize(
    ("qos", "priority", "containers", "band"),
    [
        ("LSR", 5499, [GUARANTEED], PriorityBand.BATCH),
        ("LSR", None, [GUARANTEED], PriorityBand.PROD),
        ("LSE", None, [GUARANTEED], PriorityBand.PROD),
        ("SYSTEM", None, [], PriorityBand.PROD),
        ("BE", None, [GUARANTEED], PriorityBand.BATCH),
        (None, None, [BURSTABLE], PriorityBand.PROD),
        (None, None, [({}, {})], PriorityBand.BATCH),
    ],
)
def test_the_effective_band_falls_back_on_the_qos_class(
    qos: str | None, priority: int | None, containers: list[tuple[dict[str, int], dict[str, int]]], band: PriorityBand
) -> None:
    pod_labels = {labels.QOS_CLASS: qos} if qos else {}
    assert effective_band(pod_labels, priority, kubernetes_qos(containers)) is band


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([], KubernetesQos.BEST_EFFORT),
        ([({}, {})], KubernetesQos.BEST_EFFORT),
        ([({"kubernetes.io/batch-cpu": 1000}, {})], KubernetesQos.BEST_EFFORT),
        ([GUARANTEED], KubernetesQos.GUARANTEED),
        ([GUARANTEED, ({}, {})], KubernetesQos.BURSTABLE),
        ([BURSTABLE], KubernetesQos.BURSTABLE),
        ([({"cpu": 1000}, {"cpu": 1000})], KubernetesQos.BURSTABLE),
        ([({}, {"cpu": 1000, "memory": 1})], KubernetesQos.GUARANTEED),
    ],
)
def test_the_kubernetes_class_follows_requests_and_limits(
    containers: list[tuple[dict[str, int], dict[str, int]]], expected: KubernetesQos
) -> None:
    assert kubernetes_qos(containers) is expected


@pytest.mark.parametrize(
    ("kubernetes", "expected"),
    [
        (KubernetesQos.GUARANTEED, QosClass.LSR),
        (KubernetesQos.BURSTABLE, QosClass.LS),
        (KubernetesQos.BEST_EFFORT, QosClass.BE),
    ],
)
def test_an_absent_or_unknown_qos_label_follows_the_kubernetes_class(
    kubernetes: KubernetesQos, expected: QosClass
) -> None:
    assert effective_qos({}, kubernetes) is expected
    assert effective_qos({labels.QOS_CLASS: "XXL"}, kubernetes) is expected
    assert effective_qos({labels.QOS_CLASS: "SYSTEM"}, kubernetes) is QosClass.SYSTEM
    assert labelled_qos({labels.QOS_CLASS: "XXL"}) is QosClass.NONE


def test_a_set_priority_wins_over_the_bands_default() -> None:
    assert priority_value(PriorityBand.BATCH, 5100) == 5100
    assert priority_value(PriorityBand.BATCH, None) == 5500
    assert priority_value(PriorityBand.BATCH, 0) == 5500
    assert priority_value(PriorityBand.NONE, None) == 0


@pytest.mark.parametrize(
    ("text", "value"), [("5300", 5300), ("0x10", 16), ("-5", -5), ("", 0), ("high", 0), (str(2**31), 0), ("1.5", 0)]
)
def test_sub_priority_is_a_32_bit_number_or_zero(text: str, value: int) -> None:
    assert sub_priority({labels.PRIORITY: text}) == value


@pytest.mark.parametrize(
    ("qos", "band", "requests"),
    [
        (QosClass.BE, PriorityBand.BATCH, {}),
        (QosClass.BE, PriorityBand.MID, {}),
        (QosClass.BE, PriorityBand.FREE, {}),
        (QosClass.LSR, PriorityBand.PROD, {"cpu": 2000}),
        (QosClass.LSE, PriorityBand.BATCH, {"cpu": 1000}),
        (QosClass.LS, PriorityBand.NONE, {"cpu": 1}),
        (QosClass.NONE, PriorityBand.BATCH, {"cpu": 1}),
        (QosClass.BE, PriorityBand.BATCH, {"kubernetes.io/batch-cpu": 1}),
    ],
)
def test_allowed_combinations(qos: QosClass, band: PriorityBand, requests: dict[str, int]) -> None:
    assert check_combination(qos, band, requests) == []


@pytest.mark.parametrize(
    ("qos", "band", "requests", "says"),
    [
        (QosClass.BE, PriorityBand.PROD, {}, "allowed: mid, batch or free"),
        (QosClass.BE, PriorityBand.NONE, {}, "allowed: mid, batch or free"),
        (QosClass.LSR, PriorityBand.BATCH, {"cpu": 1000}, "allowed: prod"),
        (QosClass.LSR, PriorityBand.MID, {"cpu": 1000}, "allowed: prod"),
        (QosClass.LSR, PriorityBand.FREE, {"cpu": 1000}, "allowed: prod"),
        (QosClass.LSR, PriorityBand.NONE, {"cpu": 1000}, "allowed: prod"),
        (QosClass.NONE, PriorityBand.BATCH, {"kubernetes.io/batch-memory": 1}, "BE"),
        (QosClass.LS, PriorityBand.BATCH, {"kubernetes.io/batch-cpu": 1}, "BE"),
        (QosClass.LSR, PriorityBand.PROD, {"cpu": 1500}, "whole number"),
        (QosClass.LSE, PriorityBand.PROD, {}, "whole number"),
    ],
)
def test_forbidden_combinations_say_what_is_allowed(
    qos: QosClass, band: PriorityBand, requests: dict[str, int], says: str
) -> None:
    (violation,) = check_combination(qos, band, requests)
    assert says in violation.message
