import itertools
from pathlib import Path

import pytest

from cotenant.demo import arms, plan
from cotenant.demo.arms import Admission, CotenantNeighbours
from cotenant.demo.programs import Programs, User
from cotenant.errors import CotenantError

BATCH = plan.neighbours(2)[:3]


class Gateway:
    """Remembers what it was told; every look at the pods shows the next of `states`, the last one for ever."""

    def __init__(self, *states):
        self.states = itertools.chain(states, itertools.repeat(states[-1]))
        self.applied = []
        self.deleted = []
        self.gone = []
        self.refuse = False

    async def apply(self, manifests):
        self.applied += manifests
        action = "refused" if self.refuse else "created"
        return [{"name": m["metadata"]["name"], "action": action, "errors": ["no"]} for m in manifests]

    async def pods(self, _namespace):
        shown = next(self.states)
        return [pod("http-service", "Running"), *(p for p in shown if p["name"] not in self.deleted)]

    async def explain(self, name, _namespace):
        return {"message": f"{name} waits"}

    async def delete(self, _kind, name, _namespace):
        self.deleted.append(name)

    async def wait_gone(self, _kind, name, _namespace, *, timeout_s):
        self.gone.append(name)


def pod(name, phase, reason=None, **more):
    return {"name": name, "phase": phase, "reason": reason, "message": reason, "node": None, "restarts": 0, **more}


def pods(*phases_and_reasons):
    return [pod(each.name, *state) for each, state in zip(BATCH, phases_and_reasons, strict=True)]


RUNS = ("Running",)
WAITS = ("Pending", "InsufficientResource")
QUEUED = ("Pending", "Queued")


def neighbours(gateway, explain=lambda _: None):
    programs = Programs(Path("/examples"), "python3", User(1, 1, ""), Path("/counters"))
    return CotenantNeighbours(BATCH, programs, gateway, None, "n1", 1, explain)


async def test_it_starts_when_each_runs_or_waits_for_a_reason_of_its_own():
    gateway = Gateway(pods(QUEUED, QUEUED, QUEUED), pods(RUNS, QUEUED, WAITS), pods(RUNS, WAITS, WAITS))
    await neighbours(gateway).start("1-cotenant")

    assert [manifest["metadata"]["name"] for manifest in gateway.applied] == [each.name for each in BATCH]
    assert next(gateway.states) == pods(RUNS, WAITS, WAITS)


async def test_the_one_that_waits_is_explained():
    heard = []
    await neighbours(Gateway(pods(RUNS, RUNS, WAITS)), heard.append).start("1-cotenant")

    assert heard == [{"name": BATCH[2].name, "message": f"{BATCH[2].name} waits"}]


async def test_a_node_that_sells_nothing_in_time_is_shown_as_it_is(monkeypatch):
    monkeypatch.setattr(arms, "_ROOM_TIMEOUT_S", 0.0)
    await neighbours(Gateway(pods(WAITS, WAITS, WAITS))).start("1-cotenant")


async def test_a_neighbour_that_nobody_decides_on_is_an_error_that_names_it(monkeypatch):
    monkeypatch.setattr(arms, "_SETTLE_TIMEOUT_S", 0.0)
    with pytest.raises(CotenantError, match=f"{BATCH[1].name} Pending"):
        await neighbours(Gateway(pods(RUNS, QUEUED, RUNS))).start("1-cotenant")


async def test_a_refusal_of_the_gateway_is_an_error():
    gateway = Gateway(pods(RUNS, RUNS, RUNS))
    gateway.refuse = True
    with pytest.raises(CotenantError, match="refused"):
        await neighbours(gateway).start("1-cotenant")


async def test_stopping_removes_the_neighbours_and_leaves_the_service():
    gateway = Gateway(pods(RUNS, RUNS, WAITS))
    await neighbours(gateway).stop()

    assert gateway.deleted == [each.name for each in BATCH]
    assert gateway.gone == gateway.deleted


async def test_admission_counts_who_runs_and_who_waits():
    found = await neighbours(Gateway(pods(RUNS, RUNS, WAITS))).admission()

    assert found == Admission(running=2, pending=1, cap_milli=None, restarts=0)
