"""Deployments and Jobs: which pods are missing, which are too many, and when the work is done."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from cotenant_common.model.ids import object_key
from cotenant_gateway.core import names
from cotenant_gateway.core.admission import admit_pod
from cotenant_gateway.core.catalog import Catalog
from cotenant_gateway.core.demand import Demand
from cotenant_gateway.core.digest import digest
from cotenant_gateway.core.lifecycle import GATEWAY, stop, successor
from cotenant_gateway.core.plan import new_uid
from cotenant_gateway.core.records import Change, PodState, Put, Remove, Spec
from cotenant_gateway.core.validate.schema import Report

Build = Callable[[Spec, int], Spec | None]
"""(controller, ordinal) → the pod as admission lets it through, or None."""

DEFAULT_BACKOFF_LIMIT: Final = 6
_FIRST_DELAY_MS: Final = 10_000
_LONGEST_DELAY_MS: Final = 360_000
MAX_CREATED: Final = 200
"""Pods created in one pass; the next pass follows at once."""
Pods = Mapping[int, PodState]


def build_pod(
    owner: Spec, ordinal: int, catalog: Catalog, now_ms: int, seed: str, report: Report, demand: Demand | None = None
) -> Spec | None:
    """A controller's pod, through the same admission as a user's."""
    template = owner.body["template"]
    name = f"{owner.name}-{ordinal}"
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), names.TEMPLATE_HASH: template_hash(owner)}
    annotations = dict(metadata.get("annotations") or {})
    pod_spec = dict(template["spec"])
    if owner.kind == "Job":
        labels[names.JOB_NAME] = owner.name[:63].rstrip("-.")
        annotations[names.COMPLETION_INDEX] = str(ordinal)
        pod_spec["containers"] = [_with_index(container, ordinal) for container in pod_spec["containers"]]
    reference = {
        "apiVersion": owner.manifest["apiVersion"],
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": labels,
            "ownerReferences": [reference],
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": pod_spec,
    }
    admitted = admit_pod(manifest, catalog, report, ("spec", "template"), demand)
    if admitted is None:
        return None
    uid = new_uid("Pod", owner.namespace, name, 0, seed)
    return Spec("Pod", owner.namespace, name, uid, now_ms, admitted.manifest, owner=owner.object, tells=("pod.queued",))


def _with_index(container: Mapping[str, Any], ordinal: int) -> dict[str, Any]:
    entry = {"name": names.COMPLETION_INDEX_ENV, "value": str(ordinal)}
    env = [e for e in container.get("env") or () if e.get("name") != names.COMPLETION_INDEX_ENV]
    return {**container, "env": [entry, *env]}


def template_hash(owner: Spec) -> str:
    return digest(owner.body["template"], 10)


def owner_key(kind: str, namespace: str | None, name: str) -> str:
    return object_key(kind, namespace, name)


def by_ordinal(owner: Spec, pods: Iterable[PodState]) -> dict[int, PodState]:
    prefix = len(owner.name) + 1
    found = {int(pod.spec.name[prefix:]): pod for pod in pods if pod.spec.name[prefix:].isdigit()}
    return dict(sorted(found.items()))


def reconcile_deployment(owner: Spec, pods: Pods, build: Build, now_ms: int, seed: str) -> list[Change]:
    replicas = int(owner.body.get("replicas", 1))
    surplus = [pod for ordinal, pod in sorted(pods.items(), reverse=True) if ordinal >= replicas]
    changes = [stop(pod, f"{owner.object} wants {replicas} pods", GATEWAY, now_ms) for pod in surplus]
    missing = [ordinal for ordinal in range(replicas) if ordinal not in pods]
    changes += [_create(owner, ordinal, build) for ordinal in missing[:MAX_CREATED]]
    kept = {ordinal: pod for ordinal, pod in pods.items() if ordinal < replicas}
    ended = {ordinal: pod for ordinal, pod in kept.items() if pod.finished and not pod.leaving}
    changes += [_again(owner, ordinal, pod, build, now_ms, seed) for ordinal, pod in ended.items()]
    if not owner.body.get("paused"):
        running = {ordinal: pod for ordinal, pod in kept.items() if ordinal not in ended}
        changes += _roll(owner, running, bool(missing or ended), now_ms)
    return [change for change in changes if change is not None]


def _create(owner: Spec, ordinal: int, build: Build) -> Change | None:
    spec = build(owner, ordinal)
    return Put(spec) if spec is not None else None


def _again(owner: Spec, ordinal: int, pod: PodState, build: Build, now_ms: int, seed: str) -> Change | None:
    """A pod that ended although it should run for ever; each end in a row waits twice as long."""
    if now_ms < retry_at_ms(pod, now_ms, pod.spec.incarnation):
        return None
    fresh = build(owner, ordinal)
    if fresh is None:
        return None
    reason = (pod.seen.reason if pod.seen else None) or "Failed"
    following = successor(pod.spec, reason, now_ms, seed)
    return Put(_with_manifest(following, fresh.manifest), pod.spec)


def _with_manifest(spec: Spec, manifest: Mapping[str, Any]) -> Spec:
    return spec.changed(manifest, *spec.tells) if spec.manifest != manifest else spec


def retry_at_ms(pod: PodState, now_ms: int, failures: int) -> int:
    ended = pod.spec.terminal_ms
    if ended is None:
        return now_ms + 1  # the end is not noted yet; that write comes first
    return ended + min(_FIRST_DELAY_MS << min(failures, 10), _LONGEST_DELAY_MS)


def _roll(owner: Spec, pods: Pods, busy: bool, now_ms: int) -> list[Change | None]:
    """One pod at a time, unless the pod serves nobody anyway; ``Recreate`` takes them all."""
    wanted = template_hash(owner)
    outdated = [
        pod
        for _, pod in sorted(pods.items(), reverse=True)
        if pod.spec.labels.get(names.TEMPLATE_HASH) != wanted and not pod.leaving
    ]
    message = f"the template of {owner.object} changed"
    if (owner.body.get("strategy") or {}).get("type") == "Recreate":
        return [stop(pod, message, GATEWAY, now_ms) for pod in outdated]
    useless = [pod for pod in outdated if not pod.ready]
    waiting = busy or any(not pod.ready or pod.leaving for pod in pods.values())
    serving = [pod for pod in outdated if pod.ready][: 0 if waiting else 1]
    return [stop(pod, message, GATEWAY, now_ms) for pod in [*useless, *serving]]


def needs_ended(owner: Spec, pod: PodState) -> bool:
    """The ended pod says something that is noted nowhere else yet: that it has to be replaced, or that it counts."""
    if owner.kind == "Deployment":
        return True
    noted = parse_ordinals((owner.manifest.get("status") or {}).get("completedIndexes", ""))
    return job_condition(owner) is None and noted.isdisjoint(by_ordinal(owner, [pod]))


def reconcile_job(owner: Spec, pods: Pods, build: Build, now_ms: int, seed: str) -> list[Change]:
    """Each of ``completions`` ordinals has to succeed once; ``failed`` counts the ends that did not."""
    job = _Job(owner, pods, build, now_ms, seed)
    return job.after_the_end() if job.ended else job.run()


def job_condition(owner: Spec) -> str | None:
    """``Complete``, ``Failed`` or None while the Job runs."""
    conditions = (owner.manifest.get("status") or {}).get("conditions") or ()
    return next((str(c["type"]) for c in conditions), None)


def waits_for_time(owner: Spec, pods: Pods) -> bool:
    """Whether a later look at the same pods may decide otherwise: a deadline, a time to live, a retry, a missing pod.

    What keeps a pod from being made, such as a name that is taken, ends without news of the owner.
    """
    if owner.kind == "Deployment":
        replicas = int(owner.body.get("replicas", 1))
        return len(pods) < replicas or any(pod.finished for pod in pods.values())
    if job_condition(owner) is not None:
        return "ttlSecondsAfterFinished" in owner.body
    if "activeDeadlineSeconds" in owner.body:
        return True
    succeeded = int((owner.manifest.get("status") or {}).get("succeeded", 0))
    wanted = min(int(owner.body.get("parallelism", 1)), int(owner.body.get("completions", 1)) - succeeded)
    unfinished = [pod for pod in pods.values() if pod.seen is None or pod.seen.phase != "Succeeded"]
    return len(unfinished) < wanted or any(pod.finished for pod in unfinished)


class _Job:
    def __init__(self, owner: Spec, pods: Pods, build: Build, now_ms: int, seed: str) -> None:
        self.owner, self.pods, self.build, self.now_ms, self.seed = owner, pods, build, now_ms, seed
        self.status: Mapping[str, Any] = owner.manifest.get("status") or {}
        self.completions = int(owner.body.get("completions", 1))
        self.parallelism = int(owner.body.get("parallelism", 1))
        self.backoff_limit = int(owner.body.get("backoffLimit", DEFAULT_BACKOFF_LIMIT))
        self.failed = int(self.status.get("failed", 0))
        self.done = parse_ordinals(self.status.get("completedIndexes", ""))

    @property
    def ended(self) -> bool:
        return job_condition(self.owner) is not None

    def after_the_end(self) -> list[Change]:
        ttl_s = self.owner.body.get("ttlSecondsAfterFinished")
        ended_ms = int(self.status["conditions"][0]["lastTransitionMs"])
        if ttl_s is not None and self.now_ms - ended_ms >= 1000 * int(ttl_s):
            return [Remove(self.owner, message="ttlSecondsAfterFinished")]
        return self._stop_active("the Job has ended")

    def run(self) -> list[Change]:
        succeeded = [o for o, pod in self.pods.items() if pod.seen and pod.seen.phase == "Succeeded"]
        self.done |= {o for o in succeeded if o < self.completions and not self.pods[o].leaving}
        deadline_s = self.owner.body.get("activeDeadlineSeconds")
        if deadline_s is not None and self.now_ms - self.owner.created_ms >= 1000 * int(deadline_s):
            return self._fail("DeadlineExceeded", f"ran longer than {deadline_s} s")
        if len(self.done) >= self.completions:
            return [self._write("Complete", "Completed", f"{self.completions} of {self.completions} succeeded")]
        failures = [(o, pod) for o, pod in self.pods.items() if self._has_failed(pod) and o not in self.done]
        if failures and self.failed + len(failures) > self.backoff_limit:
            self.failed += len(failures)
            return self._fail("BackoffLimitExceeded", f"{self.failed} pods failed, {self.backoff_limit} may")
        changes = self._retry(failures)
        changes += self._scale()
        status = self._note()
        return [status, *changes] if status else changes

    @staticmethod
    def _has_failed(pod: PodState) -> bool:
        return pod.seen is not None and pod.seen.phase == "Failed" and pod.finished and not pod.leaving

    def _retry(self, failures: Sequence[tuple[int, PodState]]) -> list[Change]:
        due = [pod for _, pod in failures if self.now_ms >= retry_at_ms(pod, self.now_ms, self.failed)][:MAX_CREATED]
        reason = "Failed"
        # The count and the successors share one batch: a crash between them would count a failure twice or never.
        self.failed += len(due)
        return [Put(successor(pod.spec, reason, self.now_ms, self.seed), pod.spec) for pod in due]

    def _scale(self) -> list[Change]:
        active = [o for o, pod in self.pods.items() if o not in self.done and o < self.completions]
        wanted = min(self.parallelism, self.completions - len(self.done))
        if len(active) > wanted:
            message = f"{self.owner.object} runs {wanted} pods at a time"
            stopped = [stop(self.pods[o], message, GATEWAY, self.now_ms) for o in sorted(active)[wanted:]]
            return [change for change in stopped if change is not None]
        free = (o for o in range(self.completions) if o not in self.done and o not in self.pods)
        chosen = [o for o, _ in zip(free, range(min(wanted - len(active), MAX_CREATED)), strict=False)]
        created = [_create(self.owner, ordinal, self.build) for ordinal in chosen]
        return [change for change in created if change is not None]

    def _stop_active(self, message: str) -> list[Change]:
        stopped = [stop(pod, message, GATEWAY, self.now_ms) for pod in self.pods.values() if not pod.finished]
        return [change for change in stopped if change is not None]

    def _fail(self, reason: str, message: str) -> list[Change]:
        return [self._write("Failed", reason, message), *self._stop_active(message)]

    def _note(self) -> Change | None:
        status = self._status()
        return None if status == self.status else Put(self._with(status), self.owner)

    def _write(self, condition: str, reason: str, message: str) -> Change:
        entry = {"type": condition, "reason": reason, "message": message, "lastTransitionMs": self.now_ms}
        return Put(self._with({**self._status(), "conditions": [entry]}), self.owner)

    def _status(self) -> dict[str, Any]:
        values = {"completedIndexes": format_ordinals(self.done), "succeeded": len(self.done), "failed": self.failed}
        return {key: value for key, value in values.items() if value}

    def _with(self, status: Mapping[str, Any]) -> Spec:
        return self.owner.changed({**self.owner.manifest, "status": dict(status)})


def parse_ordinals(text: str) -> set[int]:
    """``0-3,5`` → {0, 1, 2, 3, 5}."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return found


def format_ordinals(ordinals: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for ordinal in sorted(ordinals):
        if runs and runs[-1][1] == ordinal - 1:
            runs[-1][1] = ordinal
        else:
            runs.append([ordinal, ordinal])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
