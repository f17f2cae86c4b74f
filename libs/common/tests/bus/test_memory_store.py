"""What the streams of the in-memory bus spare themselves, and what nobody may notice of it."""

from collections.abc import Callable

from cotenant_common.bus.memory_store import BucketStore
from cotenant_common.bus.protocol import Entry, Put
from cotenant_common.contracts.buckets import HEARTBEATS, LEASES, SPECS
from cotenant_common.contracts.messages.state import Heartbeat


class ByHand:
    def __init__(self) -> None:
        self.now = 0.0
        self.set: list[tuple[float, Callable[[], None]]] = []

    def now_s(self) -> float:
        return self.now

    def call_at(self, when_s: float, callback: Callable[[], None]) -> None:
        self.set.append((when_s, callback))

    def run_until(self, now: float) -> None:
        while due := [one for one in self.set if one[0] <= now]:
            first = min(due, key=lambda one: one[0])
            self.set.remove(first)
            self.now = first[0]
            first[1]()
        self.now = now


def test_a_key_that_is_renewed_has_one_timer_and_lives_until_its_last_ttl() -> None:
    timers = ByHand()
    store = BucketStore(LEASES, timers)
    for second in range(20):
        timers.run_until(second)
        store.apply([Put("lease.x", b"me", ttl_s=4)])
        assert len(timers.set) == 1
    timers.run_until(22.9)
    assert store.get("lease.x") is not None
    timers.run_until(23)
    assert store.get("lease.x") is None
    assert timers.set == []


def test_a_shorter_ttl_counts_from_its_own_write() -> None:
    timers = ByHand()
    store = BucketStore(LEASES, timers)
    store.apply([Put("k", b"long", ttl_s=60)])
    store.apply([Put("k", b"short", ttl_s=2)])
    timers.run_until(2)
    assert store.get("k") is None
    store.apply([Put("k", b"again", ttl_s=90)])
    timers.run_until(60)
    assert store.get("k") is not None, "the first timer is not its"


def test_a_write_without_a_ttl_ends_the_expiry() -> None:
    timers = ByHand()
    store = BucketStore(LEASES, timers)
    store.apply([Put("k", b"1", ttl_s=2)])
    store.apply([Put("k", b"2")])
    timers.run_until(10)
    assert store.get("k") is not None


def test_a_timer_that_comes_a_little_early_is_not_set_again_for_the_rest() -> None:
    timers = ByHand()
    store = BucketStore(LEASES, timers)
    store.apply([Put("k", b"1", ttl_s=4)])
    ((_, expire),) = timers.set
    timers.now = 4 - 1e-10
    expire()
    assert store.get("k") is None


def test_watchers_hear_their_pattern_only_and_nothing_once_they_left() -> None:
    store = BucketStore(SPECS, ByHand())
    pods: list[str] = []
    everything: list[str] = []

    def hear_pod(entry: Entry) -> None:
        pods.append(entry.key)

    store.watch("Pod.>", hear_pod)
    store.apply([Put("Pod.default.a", b"1")])
    store.watch(">", lambda entry: everything.append(entry.key))
    store.apply([Put("Pod.default.a", b"2")])
    store.apply([Put("Node.-.n1", b"1")])
    store.unwatch(hear_pod)
    store.apply([Put("Pod.default.a", b"3")])
    assert pods == ["Pod.default.a", "Pod.default.a"]
    assert everything == ["Pod.default.a", "Node.-.n1", "Pod.default.a"]


def test_what_readers_made_of_a_value_holds_for_the_same_value_only() -> None:
    store = BucketStore(HEARTBEATS, ByHand())
    beat = Heartbeat(node="n1", agent_id="a", at_ms=1)
    store.apply([Put("n1", b"same")])
    first = store.get("n1")
    assert first is not None
    first.decoded[Heartbeat] = beat
    store.apply([Put("n1", b"same")])
    renewed = store.get("n1")
    assert renewed is not None
    assert (renewed.decoded, renewed.revision) == ({Heartbeat: beat}, first.revision + 1)
    store.apply([Put("n1", b"other")])
    changed = store.get("n1")
    assert changed is not None
    assert changed.decoded == {}
