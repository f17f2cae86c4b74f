from cotenant_common.model import labels
from cotenant_common.model.pod import Pod, parse_pod
from cotenant_common.model.resources import BATCH_CPU, CPU, MEMORY
from cotenant_descheduler.core.victims import NEVER_EVICT, Candidate, Kept, Target, eviction_cost, landing_places, rank


def pod(name: str, *, qos: str = "BE", priority: int = 5500, cpu: str = "1000", **annotations: str) -> Pod:
    manifest = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {labels.QOS_CLASS: qos},
            "annotations": {key.replace("__", "/"): value for key, value in annotations.items()},
        },
        "spec": {
            "priority": priority,
            "containers": [{"name": "main", "resources": {"requests": {BATCH_CPU: cpu}}}],
        },
    }
    return parse_pod(manifest, uid=f"uid-{name}")


def candidate(name: str, cpu_milli: int = 1000, started_ms: int = 0, **kwargs: object) -> Candidate:
    return Candidate(pod(name, **kwargs), {CPU: cpu_milli, MEMORY: 1 << 20}, started_ms)


def names(candidates: tuple[Candidate, ...]) -> list[str]:
    return [c.pod.name for c in candidates]


def test_less_important_pods_go_first() -> None:
    ranking = rank([candidate("batch"), candidate("free", priority=3500), candidate("mid", priority=7500)], {CPU: 500})
    assert names(ranking.candidates) == ["free", "batch", "mid"]


def test_of_equals_the_tightest_fit_goes() -> None:
    ranking = rank([candidate("large", 3000), candidate("small", 200), candidate("fits", 1100)], {CPU: 1000})
    assert names(ranking.candidates) == ["fits", "large", "small"]


def test_of_equal_fits_the_newer_goes() -> None:
    ranking = rank([candidate("old", started_ms=1), candidate("new", started_ms=2)], {CPU: 1000})
    assert names(ranking.candidates) == ["new", "old"]


def test_protected_pods_are_reported_with_their_reason() -> None:
    ranking = rank(
        [
            candidate("service", qos="LS", priority=9500),
            candidate("pinned", **{labels.EVICTION_COST.replace("/", "__"): str(NEVER_EVICT)}),
            candidate("idle", cpu_milli=0),
        ],
        {CPU: 500},
    )
    assert ranking.candidates == ()
    assert {r.pod: r.why.split(";")[0] for r in ranking.rejections} == {
        "default/service": "has QoS LS",
        "default/pinned": "has the eviction cost that means never",
        "default/idle": "uses none of the short cpu",
    }
    assert {r.kept for r in ranking.rejections} == {Kept.NOT_BEST_EFFORT, Kept.NEVER_EVICT, Kept.NO_USE}


def test_unknown_usage_is_told_apart_from_no_usage() -> None:
    ranking = rank([Candidate(pod("new"), {})], {CPU: 500})
    assert ranking.rejections[0].why == "has no measured usage of the short cpu"
    assert ranking.rejections[0].kept is Kept.USAGE_UNKNOWN


def test_eviction_cost_follows_the_strict_grammar() -> None:
    key = labels.EVICTION_COST.replace("/", "__")
    costs = {text: eviction_cost(pod("a", **{key: text})) for text in ("-5", "100", "+1", "007", "x", str(2**31))}
    assert costs == {"-5": -5, "100": 100, "+1": 0, "007": 0, "x": 0, str(2**31): 0}


def target(name: str, used: int, free: int | None = 2000) -> Target:
    return Target(name, {CPU: 4000, MEMORY: 1 << 32}, {CPU: used, MEMORY: 0}, {} if free is None else {BATCH_CPU: free})


def test_the_coolest_node_that_stays_under_its_line_is_first() -> None:
    landing, refused = landing_places(
        candidate("a"), [target("n1", 2000), target("n2", 1000), target("n3", 3500)], {CPU: 95.0, MEMORY: 95.0}
    )
    assert landing == ("n2", "n1")
    assert [r.pod for r in refused] == ["n3"]


def test_a_node_that_sells_no_batch_takes_no_batch_pod() -> None:
    landing, refused = landing_places(candidate("a"), [target("n1", 0, free=None)], {CPU: 95.0})
    assert landing == ()
    assert "no kubernetes.io/batch-cpu free" in refused[0].why
