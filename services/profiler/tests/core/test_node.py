from typing import Any

from cotenant_common.model.qos import PriorityBand, QosClass
from cotenant_common.model.reasons import ReasonCode
from cotenant_profiler.core.facts import PodFacts
from cotenant_profiler.core.node import Machine, NodeProfile, Offer, Tuning
from cotenant_profiler.core.strategy import EvictionBand, Strategy
from cotenant_profiler.core.usage import PodSample, Sample

MACHINE = Machine({"cpu": 10_000, "memory": 1000}, {"cpu": 10_000, "memory": 1000}, {})
FULL = Strategy(reclaim_percent={"cpu": 100, "memory": 100})
SECOND = 1000


def _pod(uid: str = "p", cpu: int = 4000) -> PodFacts:
    return PodFacts(uid, PriorityBand.PROD, QosClass.LS, {"cpu": cpu, "memory": 100})


def _sample(at_ms: int, cpu: int, **pods: int) -> Sample:
    usage = {"cpu": 1000, "memory": 100}
    measured = {uid: PodSample(PriorityBand.PROD, {"cpu": used, "memory": 50}) for uid, used in pods.items()}
    return Sample(at_ms, {"cpu": cpu, "memory": 150}, usage, measured)


def _profile(**tuning: Any) -> NodeProfile:
    return NodeProfile(Tuning(**tuning), 0)


def _batch(offer: Offer | None) -> int | None:
    assert offer is not None
    return None if offer.batch is None else offer.batch["cpu"]


def test_nothing_is_said_before_the_first_complete_sample() -> None:
    profile = _profile()
    assert profile.offer(MACHINE, [], FULL, 0) is None
    profile.observe(Sample(1, {"memory": 1}, {"memory": 1}), 1)
    assert profile.offer(MACHINE, [], FULL, 1) is None


def test_what_is_not_used_is_sold_at_once() -> None:
    profile = _profile()
    profile.observe(_sample(0, 3000, p=2000), 0)
    offer = profile.offer(MACHINE, [_pod()], FULL, 0)
    assert offer is not None
    assert (offer.batch, offer.mid) == ({"cpu": 7000, "memory": 850}, {"cpu": 0, "memory": 0})
    assert offer.message.startswith("cpu 10 − 0 above the 100% line − 1 system − 2 used by prod and mid = 7; memory")


def test_a_new_pod_takes_its_request_at_once() -> None:
    profile = _profile()
    profile.observe(_sample(0, 1000), 0)
    assert _batch(profile.offer(MACHINE, [], FULL, 0)) == 9000
    assert _batch(profile.offer(MACHINE, [_pod()], FULL, 100)) == 5000


def test_room_is_offered_again_only_after_it_has_stayed() -> None:
    profile = _profile(window_ms=1)
    profile.observe(_sample(0, 5000, p=4000), 0)
    assert _batch(profile.offer(MACHINE, [_pod()], FULL, 0)) == 5000
    for second in range(1, 12):
        profile.observe(_sample(second * SECOND, 1000, p=0), second * SECOND)
        offer = profile.offer(MACHINE, [_pod()], FULL, second * SECOND)
        assert _batch(offer) == (5000 if second < 11 else 9000)
        assert offer is not None
        assert ("5 is sold until the change lasts" in offer.message) is (second < 11)


def test_silence_ends_the_sale_and_a_fresh_sample_begins_it_anew() -> None:
    profile = _profile()
    profile.observe(_sample(0, 9500, p=8000), 0)
    assert _batch(profile.offer(MACHINE, [_pod()], FULL, 0)) == 1000
    assert profile.offer(MACHINE, [_pod()], FULL, 60 * SECOND) is not None
    expired = profile.offer(MACHINE, [_pod()], FULL, 60 * SECOND + 1)
    assert expired is not None
    assert (expired.batch, expired.mid, expired.degraded) == (None, None, ReasonCode.METRICS_EXPIRED)
    assert expired.message == "no complete usage sample for 60 s, so nothing is sold"
    profile.observe(_sample(600 * SECOND, 500, p=500), 600 * SECOND)
    assert _batch(profile.offer(MACHINE, [_pod()], FULL, 600 * SECOND)) == 8500


def test_the_strategys_own_degrade_time_holds_when_it_is_shorter() -> None:
    profile = _profile()
    profile.observe(_sample(0, 1000), 0)
    strategy = Strategy(reclaim_percent=FULL.reclaim_percent, degrade_ms=5000)
    assert _batch(profile.offer(MACHINE, [], strategy, 5000)) == 9000
    assert _batch(profile.offer(MACHINE, [], strategy, 5001)) is None


def test_a_node_that_never_reports_is_not_sold() -> None:
    offer = _profile().offer(MACHINE, [], FULL, 61 * SECOND)
    assert offer is not None
    assert offer.degraded is ReasonCode.METRICS_MISSING


def test_colocation_off_sells_nothing() -> None:
    profile = _profile()
    profile.observe(_sample(0, 1000), 0)
    offer = profile.offer(MACHINE, [], Strategy(enable=False), 0)
    assert offer is not None
    assert (offer.batch, offer.degraded) == (None, ReasonCode.COLOCATION_DISABLED)


def test_a_restart_does_not_skip_the_wait() -> None:
    profile = _profile()
    profile.restore("batch", {"cpu": 2000, "memory": 850}, 0)
    profile.observe(_sample(0, 1000), 0)
    assert _batch(profile.offer(MACHINE, [], FULL, 0)) == 2000


def test_nothing_is_sold_in_the_eviction_band_until_it_is_left_by_the_lower_line() -> None:
    strategy = Strategy(
        reclaim_percent=FULL.reclaim_percent,
        mid_static=True,
        mid_static_percent={"cpu": 10, "memory": 10},
        eviction={"memory": EvictionBand(70, 60)},
    )
    profile = _profile(rise_hold_ms=0)
    sold = []
    for second, used in enumerate((600, 700, 650, 599)):
        usage = {"cpu": 1000, "memory": used}
        profile.observe(Sample(second * SECOND, usage, {"cpu": 1000, "memory": 100}), second * SECOND)
        offer = profile.offer(MACHINE, [], strategy, second * SECOND)
        assert offer is not None
        assert offer.batch is not None
        assert offer.mid is not None
        sold.append((offer.batch["memory"], offer.mid["memory"]))
        assert ("falls below 60%" in offer.message) is (second in (1, 2))
    assert sold == [(900, 100), (0, 0), (0, 0), (900, 100)]


def test_usage_of_a_pod_that_has_just_ended_is_not_sold() -> None:
    profile = _profile()
    profile.observe(_sample(0, 4000, ended=3000), 0)
    assert _batch(profile.offer(MACHINE, [], FULL, 0)) == 6000


def test_mid_is_sold_once_the_peaks_are_known() -> None:
    profile = _profile(cold_start_ms=60 * SECOND, stale_ms=120 * SECOND)
    for minute in range(3):
        profile.observe(_sample(minute * 60 * SECOND, 2000, p=1000), minute * 60 * SECOND)
    offer = profile.offer(MACHINE, [_pod()], FULL, 120 * SECOND)
    assert offer is not None
    assert offer.mid is not None
    # Prod and system peak near 1 core each; 10 % margin and the width of the buckets come on top.
    assert 4000 - 2 * 1000 * 1.1 * 1.08 <= offer.mid["cpu"] <= 4000 - 2 * 1000 * 1.1


def test_while_nothing_changes_the_offer_is_the_very_same() -> None:
    profile = _profile()
    profile.observe(_sample(0, 3000, p=2000), 0)
    first = profile.offer(MACHINE, [_pod()], FULL, 0)
    profile.observe(_sample(SECOND, 3000, p=2000), SECOND)
    assert profile.offer(MACHINE, [_pod()], FULL, SECOND) is first
    profile.observe(_sample(2 * SECOND, 3000, p=2003), 2 * SECOND)
    assert profile.offer(MACHINE, [_pod()], FULL, 2 * SECOND) is not first
    assert profile.offer(MACHINE, [], FULL, 2 * SECOND) != first


def test_an_offer_that_is_still_rising_is_never_taken_for_the_last_word() -> None:
    """The same samples again and again, and yet the number has to move when the room has stayed."""
    profile = _profile(window_ms=1)
    profile.observe(_sample(0, 5000, p=4000), 0)
    profile.offer(MACHINE, [_pod()], FULL, 0)
    told = []
    for second in range(1, 30):
        profile.observe(_sample(second * SECOND, 1000, p=0), second * SECOND)
        told.append(_batch(profile.offer(MACHINE, [_pod()], FULL, second * SECOND)))
    assert told[0] == 5000
    assert told[-1] == 9000


def test_a_refresh_is_due_although_nothing_changed() -> None:
    """A small decrease is noise until the number is told anew for its age."""
    profile = _profile()
    at_ms = 0
    strategy = FULL
    offers = []
    while at_ms <= 2 * strategy.refresh_ms:
        profile.observe(_sample(at_ms, 3000, p=2000), at_ms)
        offers.append(profile.offer(MACHINE, [_pod()], strategy, at_ms))
        at_ms += strategy.refresh_ms // 4
    assert len({id(offer) for offer in offers}) == 3
    assert len({str(offer) for offer in offers}) == 1
