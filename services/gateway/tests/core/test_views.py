from dataclasses import replace

from cotenant_gateway.core import views
from cotenant_gateway.core.records import PodState
from cotenant_gateway.core.views import Waiting, pod_state, pod_view, story
from cotenant_gateway.testing import ended, leaving, pending, pod_spec, running, seen


def test_a_pending_pod_always_has_a_reason():
    assert pod_state(pending(), None)[1] == "Queued"
    unschedulable = Waiting("Unschedulable", "InsufficientResource", "0 of 1 nodes fit")
    assert pod_state(pending(), unschedulable) == ("Pending", "InsufficientResource", "0 of 1 nodes fit")
    assert pod_state(pending(), Waiting("Queued"))[1] == "Queued"
    spec = pod_spec()
    assert pod_state(PodState(spec, None, "n1"), None)[1] == "Bound"
    refused = PodState(spec, seen(spec, "Failed", rejected=True, message="no room"), "n1")
    assert pod_state(refused, None)[2] == "n1 refused: no room"


def test_a_leaving_pod_says_why():
    phase, reason, message = pod_state(leaving(running()), None)
    assert (phase, reason, message) == ("Running", "NodeHot", "leaving: m")


def test_the_view_shows_class_band_and_requests_in_integers():
    view = pod_view(running(qos="BE", band="batch", cpu="1", memory="1Gi"), None, 61_000)
    assert (view["qos"], view["band"], view["age_s"]) == ("BE", "batch", 61)
    assert view["requests"] == {"kubernetes.io/batch-cpu": 1000, "kubernetes.io/batch-memory": 1 << 30}
    assert view["usage"] is None


def test_the_story_is_in_order():
    pod = ended(noted_ms=9)
    pod = replace(pod, spec=replace(pod.spec, created_ms=3), seen=replace(pod.seen, started_ms=5, finished_ms=9))
    assert [line["type"] for line in story(pod)] == ["queued", "started", "Failed"]


def test_unsold_is_not_zero():
    facts = views.NodeFacts(None)
    assert views.node_view(facts, "n1", 0)["batch"] is None
    sold = views.NodeFacts(None, batch={"kubernetes.io/batch-cpu": 0})
    assert views.node_view(sold, "n1", 0)["batch"] == {"cpu": 0}
