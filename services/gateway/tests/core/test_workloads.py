from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cotenant_gateway.core.catalog import Catalog
from cotenant_gateway.core.names import COMPLETION_INDEX_ENV, TEMPLATE_HASH
from cotenant_gateway.core.records import Change, PodState, Put, Remove, Spec
from cotenant_gateway.core.validate.schema import Report
from cotenant_gateway.core.workloads import (
    build_pod,
    by_ordinal,
    format_ordinals,
    job_condition,
    parse_ordinals,
    reconcile_deployment,
    reconcile_job,
    waits_for_time,
)
from cotenant_gateway.testing import controller, leaving, seen

S = 1000


class Cluster:
    """Applies changes as the bucket would; the test plays the node."""

    def __init__(self, owner: Spec) -> None:
        self.owner = owner
        self.pods: dict[str, PodState] = {}
        self.now_ms = 0
        self.turn = 0

    def build(self, owner: Spec, ordinal: int) -> Spec | None:
        return build_pod(owner, ordinal, Catalog(), self.now_ms, f"s{self.turn}", Report())

    def reconcile(self) -> list[Change]:
        self.turn += 1
        decide = reconcile_job if self.owner.kind == "Job" else reconcile_deployment
        mine = by_ordinal(self.owner, self.pods.values())
        changes = decide(self.owner, mine, self.build, self.now_ms, f"s{self.turn}")
        for change in changes:
            self._apply(change)
        return changes

    def _apply(self, change: Change) -> None:
        if change.spec.kind != "Pod":
            self.owner = change.spec
        elif isinstance(change, Remove):
            del self.pods[change.spec.name]
        else:
            old = self.pods.get(change.spec.name)
            same = old is not None and old.spec.uid == change.spec.uid
            self.pods[change.spec.name] = replace(old, spec=change.spec) if same and old else PodState(change.spec)

    def run(self, *names: str, phase: str = "Running", ready: bool = True) -> None:
        for name in names or tuple(self.pods):
            spec = self.pods[name].spec
            terminal = self.now_ms if phase in ("Succeeded", "Failed") else None
            state = seen(spec, phase, ready=ready and phase == "Running", finished_ms=terminal)
            self.pods[name] = PodState(replace(spec, terminal_ms=terminal), state, "n1")

    def gone(self, *names: str) -> None:
        for name in names:
            del self.pods[name]

    def settle(self, limit: int = 20) -> int:
        """Reconcile until nothing changes; return the turns it took."""
        for turn in range(limit):
            if not self.reconcile():
                return turn
        raise AssertionError("reconciling does not settle")


def deployment(replicas: int = 3, **spec: Any) -> Cluster:
    return Cluster(controller("Deployment", replicas=replicas, **spec))


def job(status: dict[str, Any] | None = None, **spec: Any) -> Cluster:
    return Cluster(controller("Job", status=status, **spec))


def test_a_deployment_makes_its_pods_once():
    cluster = deployment()
    cluster.settle()
    assert sorted(cluster.pods) == ["w-0", "w-1", "w-2"]
    pod = cluster.pods["w-0"].spec
    assert (pod.owner, pod.tells) == ("Deployment/default/w", ("pod.queued",))
    assert pod.pod().owner_kind == "Deployment"


def test_scaling_down_takes_the_highest_ordinals_first():
    cluster = deployment()
    cluster.settle()
    cluster.run()
    cluster.owner = controller("Deployment", replicas=1)
    changes = cluster.reconcile()
    assert [change.spec.name for change in changes] == ["w-2", "w-1"]
    assert all(change.spec.deletion is not None for change in changes)
    assert cluster.reconcile() == []


def changed_template(cluster: Cluster, **extra: Any) -> None:
    manifest = dict(cluster.owner.manifest)
    spec = dict(manifest["spec"])
    template = {"metadata": {"labels": {"app": "w", "v": "2"}}, "spec": spec["template"]["spec"]}
    cluster.owner = cluster.owner.changed({**manifest, "spec": {**spec, "template": template, **extra}})


def test_a_new_template_rolls_one_pod_at_a_time():
    cluster = deployment()
    cluster.settle()
    cluster.run()
    old = cluster.pods["w-0"].spec.labels[TEMPLATE_HASH]
    changed_template(cluster)
    for name in ("w-2", "w-1", "w-0"):
        (change,) = cluster.reconcile()
        assert change.spec.name == name
        assert cluster.reconcile() == []
        cluster.gone(name)
        cluster.reconcile()
        assert cluster.reconcile() == [], "the next one waits until this one is ready"
        cluster.run(name)
    assert cluster.reconcile() == []
    assert all(pod.spec.labels[TEMPLATE_HASH] != old for pod in cluster.pods.values())


def test_pods_that_serve_nobody_are_replaced_at_once():
    cluster = deployment()
    cluster.settle()
    cluster.run(ready=False)
    changed_template(cluster)
    assert len(cluster.reconcile()) == 3


def test_recreate_takes_all_and_pause_takes_none():
    cluster = deployment()
    cluster.settle()
    cluster.run()
    changed_template(cluster, strategy={"type": "Recreate"})
    assert len(cluster.reconcile()) == 3
    cluster = deployment(paused=True)
    cluster.settle()
    cluster.run()
    changed_template(cluster)
    assert cluster.reconcile() == []


def test_a_pod_that_ended_comes_back_later_each_time():
    cluster = deployment(1)
    cluster.settle()
    waits = []
    for _ in range(3):
        cluster.run(phase="Failed")
        began = cluster.now_ms
        while not cluster.reconcile():
            cluster.now_ms += S
        waits.append((cluster.now_ms - began) // S)
    assert waits == [10, 20, 40]
    assert cluster.pods["w-0"].spec.incarnation == 3


def test_a_job_runs_each_ordinal_once_and_no_more_than_may_run():
    cluster = job(completions=3, parallelism=2)
    cluster.settle()
    assert sorted(cluster.pods) == ["w-0", "w-1"]
    env = cluster.pods["w-1"].spec.body["containers"][0]["env"]
    assert env == [{"name": COMPLETION_INDEX_ENV, "value": "1"}]
    cluster.run("w-0", phase="Succeeded")
    cluster.settle()
    assert sorted(cluster.pods) == ["w-0", "w-1", "w-2"]
    cluster.run("w-1", "w-2", phase="Succeeded")
    cluster.settle()
    assert job_condition(cluster.owner) == "Complete"
    assert cluster.owner.manifest["status"]["completedIndexes"] == "0-2"
    assert len(cluster.pods) == 3


def test_success_is_remembered_after_the_pod_is_gone():
    cluster = job(completions=2, parallelism=1)
    cluster.settle()
    cluster.run("w-0", phase="Succeeded")
    cluster.settle()
    cluster.gone("w-0")
    cluster.settle()
    assert sorted(cluster.pods) == ["w-1"]


def test_failures_are_retried_with_the_same_ordinal_and_counted_in_one_batch():
    cluster = job(backoffLimit=1)
    cluster.settle()
    cluster.run(phase="Failed")
    assert cluster.reconcile() == []
    cluster.now_ms += 10 * S
    status, successor = cluster.reconcile()
    assert (status.spec.kind, status.spec.manifest["status"]["failed"]) == ("Job", 1)
    assert (successor.spec.name, successor.spec.incarnation) == ("w-0", 1)
    cluster.run(phase="Failed")
    cluster.settle()
    assert job_condition(cluster.owner) == "Failed"
    assert cluster.owner.manifest["status"]["conditions"][0]["reason"] == "BackoffLimitExceeded"


def test_an_evicted_pod_is_no_failure():
    cluster = job()
    cluster.settle()
    cluster.run()
    cluster.pods["w-0"] = leaving(cluster.pods["w-0"])
    assert cluster.reconcile() == []


def test_a_job_past_its_deadline_fails_and_stops_its_pods():
    cluster = job(completions=2, parallelism=2, activeDeadlineSeconds=60)
    cluster.settle()
    cluster.run()
    cluster.now_ms = 60 * S
    changes = cluster.reconcile()
    assert cluster.owner.manifest["status"]["conditions"][0]["reason"] == "DeadlineExceeded"
    assert sum(isinstance(c, Put) and c.spec.deletion is not None for c in changes) == 2


def test_a_finished_job_goes_after_its_time():
    cluster = job(ttlSecondsAfterFinished=30)
    cluster.settle()
    cluster.run(phase="Succeeded")
    cluster.settle()
    cluster.now_ms = 29 * S
    assert cluster.reconcile() == []
    cluster.now_ms = 30 * S
    (change,) = cluster.reconcile()
    assert isinstance(change, Remove)


def waits(cluster: Cluster) -> bool:
    return waits_for_time(cluster.owner, by_ordinal(cluster.owner, cluster.pods.values()))


def test_only_owners_with_something_to_wait_for_are_looked_at_again():
    settled = deployment()
    settled.settle()
    settled.run()
    assert not waits(settled)
    settled.gone("w-2")
    assert waits(settled)
    settled.settle()
    settled.run("w-2", phase="Failed")
    assert waits(settled)


def test_a_job_is_looked_at_again_for_its_deadline_its_retry_and_its_time_to_live():
    running = {
        name: job(completions=1, **extra) for name, extra in (("plain", {}), ("due", {"activeDeadlineSeconds": 9}))
    }
    for cluster in running.values():
        cluster.settle()
        cluster.run()
    assert {name: waits(cluster) for name, cluster in running.items()} == {"plain": False, "due": True}
    running["plain"].run(phase="Failed")
    assert waits(running["plain"])
    ended = {
        ttl: job(completions=1, **ttl_field) for ttl, ttl_field in ((0, {}), (30, {"ttlSecondsAfterFinished": 30}))
    }
    for cluster in ended.values():
        cluster.settle()
        cluster.run(phase="Succeeded")
        cluster.settle()
    assert {ttl: waits(cluster) for ttl, cluster in ended.items()} == {0: False, 30: True}


def test_less_parallelism_stops_the_highest_ordinals():
    cluster = job(completions=4, parallelism=4)
    cluster.settle()
    cluster.run()
    manifest = cluster.owner.manifest
    cluster.owner = cluster.owner.changed({**manifest, "spec": {**manifest["spec"], "parallelism": 1}})
    assert [change.spec.name for change in cluster.reconcile()] == ["w-1", "w-2", "w-3"]


def test_a_job_of_nothing_is_complete():
    cluster = job(completions=0)
    cluster.settle()
    assert job_condition(cluster.owner) == "Complete"


@given(st.sets(st.integers(0, 300)))
def test_ordinals_as_text_and_back(ordinals):
    assert parse_ordinals(format_ordinals(ordinals)) == ordinals
