from typing import Any

import pytest

from cotenant_simulator import ScenarioError, parse
from cotenant_simulator.core.checks import judge

HEAD = """apiVersion: cotenant.io/v1
kind: Scenario
metadata: {name: x}
spec:
  duration: 1m
  expect:
    - """
POD = {"phase": "Running", "node": "n1", "incarnation": 1, "reason": None, "qos": "BE"}
OUTCOME: dict[str, Any] = {
    "pods": {"default/a": POD},
    "quotas": {"team": {"used": {"cpu": 1500}, "runtime": {}}},
    "nodes": {"n1": {"batch": {"cpu": 4000, "memory": None}, "classification": "hot"}},
    "reservations": {},
    "summary": {
        "pressure_minutes": 1.5,
        "waiting": {"batch": {"p95_s": 30.0}, "prod": {"p95_s": None}},
        "evictions": {"total": 1, "by_reason": {"NodeHot": 1}},
    },
    "events": [{"type": "pod.evicted", "reason": "NodeHot", "object": "Pod/default/a"}],
}


def verdict(entry: str):
    return judge(parse(HEAD + entry, "x").expect[0], OUTCOME)


def test_every_named_field_must_hold():
    assert verdict("{at: end, pod: a, phase: Running, node: n1, incarnation: 1}").ok
    wrong = verdict("{at: end, pod: a, phase: Running, node: n2}")
    assert not wrong.ok
    assert wrong.got == {"phase": "Running", "node": "n1"}


def test_null_is_unset():
    assert verdict("{at: end, pod: a, reason: null}").ok
    assert verdict("{at: end, node: n1, batch: {memory: null}}").ok
    assert not verdict("{at: end, node: n1, batch: {cpu: null}}").ok


def test_quantities_are_compared_by_value():
    assert verdict('{at: end, quota: team, used: {cpu: "1.5"}}').ok
    assert verdict("{at: end, node: n1, batch: {cpu: {atLeast: 3900m, atMost: 4}}}").ok
    assert not verdict('{at: end, quota: team, runtime: {cpu: "8"}}').ok, "unset is not eight"


def test_what_is_not_there_fulfils_nothing():
    missing = verdict("{at: end, reservation: r, phase: Available}")
    assert (missing.ok, missing.got) == (False, None)


def test_events_are_counted_by_what_is_said_of_them():
    assert verdict("{at: end, count: {event: pod.evicted, reason: NodeHot}, equals: 1}").ok
    assert verdict("{at: end, count: {event: pod.evicted, object: Pod/default/b}, equals: 0}").ok
    assert not verdict("{at: end, count: {event: pod.evicted}, atLeast: 2}").ok


def test_figures_of_the_summary_are_compared_by_dotted_name_or_nested():
    assert verdict("{at: end, summary: waiting.batch.p95_s, atMost: 30}").ok
    assert not verdict("{at: end, summary: waiting.batch.p95_s, atMost: 29.9}").ok
    assert verdict(
        "{at: end, summary: {waiting: {batch: {p95_s: {atLeast: 1, atMost: 40}}}, pressure_minutes: 1.5}}"
    ).ok
    assert not verdict("{at: end, summary: {pressure_minutes: 0}}").ok


def test_a_figure_nobody_knows_is_null_and_no_number():
    assert verdict("{at: end, summary: {waiting.prod.p95_s: null}}").ok
    assert not verdict("{at: end, summary: waiting.prod.p95_s, atMost: 30}").ok
    assert not verdict("{at: end, summary: {waiting.prod.p95_s: 0}}").ok


def test_a_reason_nobody_was_evicted_for_counts_zero():
    assert verdict("{at: end, summary: {evictions.by_reason.NodeLost: 0, evictions.by_reason.NodeHot: 1}}").ok


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ("{at: end, summary: {pressure_minuts: 0}}", "summary.pressure_minuts: no figure"),
        ("{at: end, summary: waiting.batch, atMost: 3}", "summary: no figure 'waiting.batch'"),
        ("{at: end, summary: pressure_minutes}", "expected one of equals, atLeast, atMost"),
        ("{at: end, summary: pressure_minutes, atMost: soon}", "atMost: expected a number"),
        ("{at: end, summary: pressure_minutes, atMost: null}", "atMost: expected a number, got null"),
        ("{at: end, summary: {}}", "summary: names no figure"),
        ("{at: end, summary: {pressure_minutes: {atMost: 1, about: 2}}}", "about: unknown field"),
    ],
)
def test_what_is_wrong_with_a_figure_is_said_with_its_place(entry: str, field: str):
    with pytest.raises(ScenarioError) as problem:
        verdict(entry)
    assert str(problem.value).startswith("x:7: spec.expect[0]")
    assert field in str(problem.value)
