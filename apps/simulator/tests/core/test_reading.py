import pytest

from cotenant_simulator import ScenarioError, parse
from cotenant_simulator.config import sealed

HEAD = """apiVersion: cotenant.io/v1
kind: Scenario
metadata: {name: x}
spec:
  duration: 1m
"""


def error(body: str, head: str = HEAD) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        parse(head + body, "file.yaml")
    return caught.value


def test_a_scenario_needs_little():
    scenario = parse(HEAD, "file.yaml")
    assert (scenario.name, scenario.seed, scenario.duration_ms) == ("x", 0, 60_000)


@pytest.mark.parametrize(
    ("body", "line", "field", "says"),
    [
        ("  sed: 1\n", 6, "spec.sed", "unknown field; did you mean 'seed'? known are"),
        ("  seed: one\n", 6, "spec.seed", "whole number"),
        ("  timeline:\n    - {at: 10, silence: {node: n1}}\n", 7, "spec.timeline[0].at", "expected a duration"),
        ("  timeline:\n    - {at: 2m, silence: {node: n1}}\n", 7, "spec.timeline[0].at", "after the scenario"),
        ("  timeline:\n    - {at: 1s, silence: {node: n1}, usage: {}}\n", 7, "spec.timeline[0]", "exactly one of"),
        ("  timeline:\n    - {at: 1s, delete: [], for: 2s}\n", 7, "spec.timeline[0].for", "delete happens at once"),
        ("  timeline:\n    - at: 1s\n      fault: {service: sheduler, kind: crash}\n", 8,
         "spec.timeline[0].fault.service", "scheduler"),
        ("  timeline:\n    - at: 1s\n      fault: {service: agent, kind: crash}\n", 8,
         "spec.timeline[0].fault.node", "whose agent"),
        ("  timeline:\n    - at: 1s\n      fault: {service: quota, kind: burn}\n", 8,
         "spec.timeline[0].fault.kind", "crash, pause, partition"),
        ("  timeline:\n    - at: 1s\n      usage: {pods: {a/b/c: {cpu: 1}}}\n", 8,
         "spec.timeline[0].usage.pods['a/b/c']", "namespace/name"),
        ("  timeline:\n    - at: 1s\n      usage: {pods: {a: {cpu: much}}}\n", 8,
         "spec.timeline[0].usage.pods.a.cpu", "quantity"),
        ("  expect:\n    - {at: end, pod: a, fase: Running}\n", 7, "spec.expect[0].fase", "did you mean"),
        ("  expect:\n    - {at: end, pod: a}\n", 7, "spec.expect[0]", "says nothing"),
        ("  expect:\n    - {at: end, count: {event: pod.bound}}\n", 7, "spec.expect[0]", "equals, atLeast, atMost"),
        ("  expect:\n    - {pod: a, phase: Running}\n", 7, "spec.expect[0].at", "required"),
        ("  objects:\n    - apiVersion: v1\n      kind: Pod\n      metadata: {name: a}\n      spec: {x: 1}\n", 10,
         "spec.objects[0].spec.x", "unknown field"),
        ("  config:\n    scheduler: {LoadAwareSheduling: {}}\n", 7, "spec.config.scheduler.LoadAwareSheduling",
         "unknown field"),
        ("  config:\n    descheduler:\n      LowNodeLoad:\n        highThresholds: {cpu: much}\n", 9,
         "spec.config.descheduler.LowNodeLoad.highThresholds.cpu", "number"),
        ("  config:\n    scheduler:\n      LoadAwareScheduling:\n        usageThresholds: {gpu: 5}\n", 9,
         "spec.config.scheduler.LoadAwareScheduling.usageThresholds", "cpu and memory"),
        ("  timeline:\n    - {at: 1s, silence: {node: n9}}\n", 7, "spec.timeline[0].silence.node", "no Node 'n9'"),
        ("  objects:\n    - apiVersion: v1\n      kind: Pod\n      metadata:\n        name: a\n        annotations:\n"
         "          cotenant.io/sim-duration: soon\n      spec: {containers: [{name: main}]}\n", 12,
         "spec.objects[0].metadata.annotations['cotenant.io/sim-duration']", "expected a duration"),
        ("  objects:\n    - apiVersion: v1\n      kind: Pod\n      metadata:\n        name: a\n        annotations:\n"
         "          cotenant.io/sim-usage: '6'\n      spec: {containers: [{name: main}]}\n", 12,
         "spec.objects[0].metadata.annotations['cotenant.io/sim-usage']", "expected JSON"),
    ],
)  # fmt: skip
def test_every_fault_names_file_line_and_field(body: str, line: int, field: str, says: str):
    found = error(body)
    assert found.line == line
    assert found.field == field
    assert says in found.message
    assert str(found).startswith(f"file.yaml:{line}: {field}: ")


def test_text_that_is_no_yaml_names_its_line():
    assert error("  objects: [\n").line is not None


def test_a_file_of_another_kind_is_refused():
    found = error("", HEAD.replace("kind: Scenario", "kind: Pod"))
    assert (found.line, found.field) == (2, "kind")


def test_reference_arguments_become_settings():
    scenario = parse(
        HEAD
        + """  config:
    descheduler:
      LowNodeLoad:
        highThresholds: {cpu: 65}
        nodeMetricExpirationSeconds: 30
        anomalyCondition: {consecutiveAbnormalities: 2}
      MigrationController: {objectLimiters: {workload: {duration: 2m}}, skipCheckExpectedReplicas: true}
      deschedulingInterval: 10s
    scheduler: {LoadAwareScheduling: {usageThresholds: {cpu: 70}}}
    quota: {enableMinQuotaScale: false}
    agent: {metricReportIntervalSeconds: 60}
""",
        "file.yaml",
    )
    found = scenario.overrides
    assert found["descheduler"]["high_thresholds"] == {"cpu": 65}
    assert found["descheduler"]["node_metric_expiration_ms"] == 30_000
    assert found["descheduler"]["descheduling_interval_ms"] == 10_000
    assert found["gateway"] == {"move_cool_down_s": 120, "protect_last_replicas": False}
    assert found["quota"]["scale_min_quota"] is False
    assert found["agent"]["usage_interval_ms"] == 60_000
    assert found["profiler"]["metric_stale_s"] == 600, "slow reports are not lost reports"


@pytest.mark.parametrize(
    ("written", "seconds"), [("", 900), (", scheduler: {LoadAwareScheduling: {nodeMetricExpirationSeconds: 30}}", 30)]
)
def test_slow_reports_stretch_what_the_scheduler_calls_old_unless_the_file_says_so(written: str, seconds: int):
    config = f"  config: {{agent: {{usageIntervalMs: 300000}}{written}}}\n"
    overrides = parse(HEAD + config, "file.yaml").overrides["scheduler"]
    assert sealed("scheduler")(**overrides).load_aware_scheduling.node_metric_expiration_seconds == seconds


def test_the_environment_does_not_reach_a_simulation(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COTENANT_DESCHEDULER_DRY_RUN", "true")
    assert sealed("descheduler")().dry_run is False


NODE_AND_POD = (
    HEAD
    + """  objects:
    - {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {capacity: {cpu: "4", memory: 8Gi}}}
    - {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: main}]}}
    - apiVersion: apps/v1
      kind: Deployment
      metadata: {name: api, namespace: shop}
      spec:
        replicas: 2
        selector: {matchLabels: {app: api}}
        template: {metadata: {labels: {app: api}}, spec: {containers: [{name: main}]}}
  timeline:
"""
)


@pytest.mark.parametrize(
    ("entry", "field", "says"),
    [
        ("usage: {pods: {default/wbe: {cpu: 1}}}", "spec.timeline[0].usage.pods", "no Pod 'default/wbe' in this file"),
        ("usage: {pods: {shop/ap-0: {cpu: 1}}}", "spec.timeline[0].usage.pods", "no Pod 'shop/ap-0'"),
        ("usage: {pods: {api-0: {cpu: 1}}}", "spec.timeline[0].usage.pods", "no Pod 'default/api-0'"),
        ("usage: {pods: {web: {cpu: 1}, default/web: {cpu: 2}}}", "spec.timeline[0].usage.pods['default/web']",
         "already set"),
        ("usage: {node: n1}", "spec.timeline[0].usage", "sets nothing"),
        ("usage: {node: n1, system: {memory: 99999Ei}}", "spec.timeline[0].usage.system.memory", "at most 8Pi"),
        ('usage: {node: n1, system: {cpu: "1e400"}}', "spec.timeline[0].usage.system.cpu", "at most"),
        ("signal: {pod: wbe, cpi: 2}", "spec.timeline[0].signal.pod", "did you mean 'default/web'"),
        ("signal: {pod: web, cpi: nan}", "spec.timeline[0].signal.cpi", "finite"),
        ("signal: {pod: web, latency_ms: inf}", "spec.timeline[0].signal.latency_ms", "finite"),
        ("delete: [{kind: Pod, name: wbe}]", "spec.timeline[0].delete", "no Pod 'default/wbe'"),
        ("delete: [{kind: Node, name: n2}]", "spec.timeline[0].delete", "no Node 'n2'"),
        ("delete: [{kind: Deployment, namespace: shop, name: web}]", "spec.timeline[0].delete", "no Deployment"),
        ("apply:", "spec.timeline[0].apply", "says nothing"),
    ],
)  # fmt: skip
def test_an_entry_that_would_do_nothing_is_an_error(entry: str, field: str, says: str):
    caught = error(f"    - at: 1s\n      {entry}\n", NODE_AND_POD)
    assert caught.field == field
    assert caught.line == NODE_AND_POD.count("\n") + 2
    assert says in caught.message


@pytest.mark.parametrize(
    "entry",
    [
        "usage: {pods: {web: {cpu: 1}, shop/api-1: {cpu: 2}}}",
        "signal: {pod: shop/api-0, cpi: 2}",
        "delete: [{kind: Pod, name: web}, {kind: ConfigMap, name: any}, {kind: ElasticQuota, name: root}]",
    ],
)
def test_an_entry_may_name_what_the_file_makes(entry: str):
    parse(f"{NODE_AND_POD}    - at: 1s\n      {entry}\n", "file.yaml")


@pytest.mark.parametrize(
    ("expectation", "field", "says"),
    [
        ("{at: end, count: {event: pod.eviction}, equals: 0}", "spec.expect[0].count.event", "did you mean"),
        ("{at: end, pod: web, phase: Runing}", "spec.expect[0].phase", "did you mean 'Running'"),
        ("{at: end, node: n1, usage: {memory: 99999Ei}}", "spec.expect[0].usage.memory", "at most"),
    ],
)
def test_a_word_that_never_occurs_is_not_silently_expected(expectation: str, field: str, says: str):
    caught = error(f"  expect:\n    - {expectation}\n")
    assert (caught.line, caught.field) == (7, field)
    assert says in caught.message


def test_nobody_waits_for_a_million_years():
    caught = error("  duration: 99999999999999999999h\n", HEAD.replace("  duration: 1m\n", ""))
    assert (caught.field, caught.message) == (
        "spec.duration", "expected at most 3650d, got '99999999999999999999h'",
    )  # fmt: skip


def test_an_annotation_of_the_simulator_that_nobody_reads_is_an_error():
    metadata = "{name: a, annotations: {cotenant.io/sim-usge: x}}"
    manifest = f"{{apiVersion: v1, kind: Pod, metadata: {metadata}, spec: {{containers: [{{name: main}}]}}}}"
    assert "cotenant.io/sim-usage" in error(f"  objects:\n    - {manifest}\n").message
