from cotenant_quota.core.timers import OverTimers


def test_a_quota_is_due_after_the_delay_and_not_before() -> None:
    timers = OverTimers()
    timers.note("t", ["a"], 1_000)
    timers.note("t", ["a", "b"], 2_000)
    assert timers.due("t", 10_999, 10_000) == []
    assert timers.due("t", 11_000, 10_000) == ["a"]


def test_a_moment_within_the_share_starts_the_delay_anew() -> None:
    timers = OverTimers()
    timers.note("t", ["a"], 1_000)
    timers.note("t", [], 2_000)
    assert timers.note("t", ["a"], 3_000) == {"a": 3_000}


def test_a_restart_goes_on_where_the_last_leader_was() -> None:
    timers = OverTimers()
    timers.restore("t", {"a": 500})
    assert timers.note("t", ["a"], 9_000) == {"a": 500}
    timers.forget("t")
    assert timers.due("t", 99_000, 0) == []
