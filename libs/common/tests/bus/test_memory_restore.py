from cotenant_common.bus.memory_store import BucketStore
from cotenant_common.bus.protocol import Entry, Put
from cotenant_common.contracts import buckets


class NoTimers:
    def now_s(self):
        return 0.0

    def call_at(self, when_s, callback):
        """Nothing here expires."""


def test_restored_entries_keep_their_revisions_and_the_next_write_follows():
    store = BucketStore(buckets.SPECS, NoTimers())
    heard = []
    store.listeners.append(heard.append)
    store.restore([Entry("b", b"2", 40), Entry("a.x", b"1", 7)], 90)
    assert [(entry.key, entry.revision) for entry in store.live(">")] == [("a.x", 7), ("b", 40)]
    assert heard == [Entry("a.x", b"1", 7), Entry("b", b"2", 40)]
    assert store.apply([Put("a.x", b"3", expect=7)]) == 91
    assert store.apply([Put("a.y", b"4", expect=91, expect_filter="a.*")]) == 92
