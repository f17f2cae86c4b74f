from cotenant_common.contracts.messages.telemetry import NodeUsage, PodUsage, Usage
from cotenant_common.model.resources import CPU, MEMORY
from cotenant_descheduler.adapters.load_window import LoadWindow

ALLOCATABLE = {CPU: 4000, MEMORY: 1 << 30}


def report(at_ms: int, cpu: int | None, pods: list[PodUsage] | None = None, pressure: float | None = None) -> NodeUsage:
    return NodeUsage(
        node="n1",
        at_ms=at_ms,
        interval_ms=1000,
        usage=Usage(cpu_milli=cpu, memory_bytes=100),
        system=Usage(),
        pods=pods or [],
        memory_pressure_some=pressure,
    )


def pod(uid: str, band: str, cpu: int | None) -> PodUsage:
    return PodUsage(uid=uid, namespace="default", name=uid, qos="LS", band=band, cpu_milli=cpu)


def window(*reports: NodeUsage, window_ms: int = 5000) -> LoadWindow:
    result = LoadWindow(window_ms)
    for one in reports:
        result.add(one)
    return result


def test_load_is_unknown_before_the_first_report() -> None:
    assert window().load("n1", ALLOCATABLE, schedulable=True) is None


def test_usage_is_the_mean_of_what_is_known() -> None:
    load = window(report(0, None), report(1000, 100), report(2000, 300)).load("n1", ALLOCATABLE, schedulable=True)
    assert load is not None
    assert load.usage == {CPU: 200, MEMORY: 100}
    assert load.memory_pressure is None


def test_cpu_stays_unknown_when_no_report_holds_it() -> None:
    load = window(report(0, None)).load("n1", ALLOCATABLE, schedulable=True)
    assert load is not None
    assert CPU not in load.usage


def test_old_and_reordered_reports_do_not_count() -> None:
    assert (
        window(report(0, 1000), report(6000, 100), report(5000, 900)).load("n1", {}, schedulable=True).usage[CPU] == 100
    )


def test_prod_usage_counts_prod_pods_only() -> None:
    pods = [pod("web", "koord-prod", 500), pod("job", "koord-batch", 900), pod("new", "koord-prod", None)]
    load = window(report(0, 2000, pods)).load("n1", ALLOCATABLE, schedulable=True)
    assert load is not None
    assert load.prod_usage[CPU] == 500


def test_pod_usage_is_by_uid() -> None:
    pods = window(
        report(0, 1, [pod("a", "", 100)]), report(1000, 1, [pod("a", "", 200), pod("b", "", None)])
    ).pod_usage()
    assert pods == {"a": {CPU: 150}, "b": {}}
