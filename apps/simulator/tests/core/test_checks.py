from typing import Any

from cotenant_simulator import parse
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
