from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cotenant_common.model.quota.spec import QuotaSpec, StopPolicy
from cotenant_common.testing.quotas import quota
from cotenant_quota.core.book import QuotaBook
from cotenant_quota.core.drain import drains
from cotenant_quota.core.pods import Gang, PodFacts
from cotenant_quota.core.revoke import Revocation, RevokePlanner
from cotenant_quota.testing import pod


def _book(total: int, specs: list[QuotaSpec], pods: list[PodFacts]) -> QuotaBook:
    book = QuotaBook()
    book.set_quotas(specs)
    book.set_cluster({"cpu": total})
    for one in pods:
        book.set_pod(one)
    return book


def _plan(book: QuotaBook, now_ms: int = 0, **options: Any) -> tuple[Revocation, ...]:
    view = book.view("default")
    due = dict.fromkeys(one.quota for one in view.standing.overuse)
    running = [(str(book.quota_of(uid)), one) for uid, one in book.pods().items()]
    return RevokePlanner(book.tree("default"), view.total, running, now_ms, **options).plan(due)


def _gone(plan: tuple[Revocation, ...]) -> list[str]:
    return [one.uid for each in plan for one in each.pods]


def _waiting(uid: str, name: str, cpu: int) -> PodFacts:
    return pod(uid, name, cpu, assigned=False)


TWO = [quota("a", min=4, max=8), quota("b", min=4, max=8)]


def test_a_borrower_gives_back_what_the_lender_waits_for() -> None:
    borrowers = [pod(f"b{index}", "b", 1, since_ms=index) for index in range(8)]
    plan = _plan(_book(8, TWO, [*borrowers, *(_waiting(f"a{i}", "a", 1) for i in range(3))]))
    assert _gone(plan) == ["b7", "b6", "b5"]
    assert {one.beneficiary for one in plan} == {"a"}
    assert plan[0].numbers["dimension"] == "cpu"
    assert "a waits for" in plan[0].message


def test_nobody_is_evicted_while_there_is_room_for_both() -> None:
    book = _book(8, TWO, [pod("b1", "b", 2), _waiting("a1", "a", 2)])
    assert _plan(book) == ()


def test_what_is_idle_is_taken_before_anybody_is_evicted() -> None:
    running = [pod(f"b{index}", "b", 1, since_ms=index) for index in range(6)]
    plan = _plan(_book(8, TWO, [*running, _waiting("a1", "a", 4)]))
    assert _gone(plan) == ["b5", "b4"]


def test_used_above_a_lowered_max_stays_while_nobody_waits() -> None:
    book = _book(20, [quota("a", max=8), quota("b", max=8)], [pod(f"a{i}", "a", 5) for i in range(2)])
    assert book.view("default").standing.overuse
    assert _plan(book) == ()
    assert len(_gone(_plan(book, unclaimed=True))) == 1


def test_used_above_a_lowered_max_stays_while_others_have_room_elsewhere() -> None:
    specs = [quota("a", max=8), quota("b", max=8)]
    book = _book(20, specs, [*(pod(f"a{i}", "a", 5) for i in range(2)), _waiting("b1", "b", 5)])
    assert _plan(book) == ()


def test_nobody_is_evicted_for_a_pod_that_may_not_run_all_the_same() -> None:
    running = [pod(f"b{index}", "b", 1) for index in range(8)]
    specs = [quota("a", min=4, max=5), quota("b", min=4, max=8)]
    too_large = _book(8, specs, [*running, _waiting("a1", "a", 6)])
    assert too_large.view("default").standing.overuse
    assert _plan(too_large) == ()
    bound = pod("a1", "a", 5, assigned=False, preemptible=False)
    assert _plan(_book(8, specs, [*running, bound])) == ()
    assert len(_gone(_plan(_book(8, specs, [*running, bound, _waiting("a2", "a", 1)])))) == 1


def test_what_is_leaving_counts_as_given_until_it_hangs() -> None:
    leaving = [pod(f"v{i}", "b", 2, leaving_until_ms=60_000) for i in range(2)]
    book = _book(8, TWO, [*leaving, *(pod(f"b{i}", "b", 2, since_ms=i) for i in range(2)), _waiting("a1", "a", 4)])
    assert _plan(book, now_ms=59_999) == ()
    # Two that hang are not asked for again; two others go, so that the lender is not blocked for ever.
    assert sorted(_gone(_plan(book, now_ms=60_000))) == ["b0", "b1"]


def test_a_pod_that_may_not_be_preempted_stays() -> None:
    running = [pod("keep", "b", 4, preemptible=False), pod("critical", "b", 1, evictable=False), pod("go", "b", 3)]
    assert _gone(_plan(_book(8, TWO, [*running, _waiting("a1", "a", 4)]))) == ["go"]


def test_an_indivisible_pod_crosses_its_min_only_for_somebody_below_theirs() -> None:
    specs = [quota("a", min=2, max=8), quota("b", min=6, max=8)]
    running = [pod("big", "b", 7)]
    assert _gone(_plan(_book(8, specs, [*running, _waiting("a1", "a", 2)]))) == ["big"]
    above_min = [quota("a", min=0, max=8), quota("b", min=6, max=8, weight=0)]
    book = _book(8, above_min, [*running, _waiting("a1", "a", 2)])
    assert book.view("default").standing.overuse
    assert _plan(book) == ()


def test_the_smaller_choice_keeps_the_min() -> None:
    specs = [quota("a", min=2, max=8), quota("b", min=6, max=8)]
    running = [pod("big", "b", 6, priority=1), pod("s1", "b", 1, priority=9), pod("s2", "b", 1, priority=9)]
    assert sorted(_gone(_plan(_book(8, specs, [*running, _waiting("a1", "a", 2)])))) == ["s1", "s2"]


def _gang(name: str, size: int, minimum: int, quota_name: str = "b") -> list[PodFacts]:
    return [
        pod(f"{name}{index}", quota_name, 1, gang=Gang(name, minimum), since_ms=index, name=f"{name}{index}")
        for index in range(size)
    ]


def test_only_the_surplus_of_a_gang_goes() -> None:
    specs = [quota("a", min=2, max=9), quota("b", min=3, max=9)]
    asked = [_waiting("a1", "a", 1), _waiting("a2", "a", 1)]
    assert _gone(_plan(_book(9, specs, [*_gang("g", 8, 3), *asked]))) == ["g7"]
    plan = _plan(_book(8, specs, [*_gang("g", 8, 3), _waiting("a1", "a", 2)]))
    assert [_gone((one,)) for one in plan] == [["g7"], ["g6"]]


def test_a_gang_without_surplus_goes_as_one() -> None:
    specs = [quota("a", min=3, max=5), quota("b", min=2, max=5)]
    plan = _plan(_book(5, specs, [*_gang("g", 3, 3), pod("b9", "b", 2, priority=9), _waiting("a1", "a", 3)]))
    assert [len(one.pods) for one in plan] == [3]


def test_a_gang_with_a_member_that_must_stay_is_left_whole() -> None:
    specs = [quota("a", min=3, max=5), quota("b", min=2, max=5)]
    members = [*_gang("g", 2, 3), pod("g-keep", "b", 1, gang=Gang("g", 3), preemptible=False)]
    assert _plan(_book(3, specs, [*members, _waiting("a1", "a", 3)])) == ()


def test_a_parent_alone_can_be_over_and_its_children_give_back_what_they_borrowed() -> None:
    # Without scaling the children's mins pass what their parent has.
    specs = [
        quota("p", min=4, max=8, is_parent=True),
        quota("p-a", min=4, max=8, parent="p"),
        quota("p-b", min=4, max=8, parent="p"),
        quota("q", min=4, max=8),
    ]
    book = QuotaBook()
    book.set_quotas(specs)
    book.set_cluster({"cpu": 8})
    for index in range(4):
        book.set_pod(pod(f"pa{index}", "p-a", 1, since_ms=index))
        book.set_pod(pod(f"pb{index}", "p-b", 1, since_ms=10 + index))
    book.set_pod(_waiting("q1", "q", 4))
    plan = _plan(book)
    assert len(_gone(plan)) == 4
    assert {one.beneficiary for one in plan} == {"q"}


def test_the_borrower_at_a_higher_level_pays_for_a_claim_from_outside() -> None:
    specs = [
        quota("p", min=4, max=8, is_parent=True),
        quota("p-a", min=4, max=8, parent="p"),
        quota("q", min=4, max=8, is_parent=True),
        quota("q-a", min=4, max=8, parent="q"),
    ]
    running = [pod(f"r{index}", "p-a", 1, since_ms=index) for index in range(8)]
    plan = _plan(_book(8, specs, [*running, _waiting("w", "q-a", 2)]))
    assert _gone(plan) == ["r7", "r6"]
    assert plan[0].beneficiary == "q-a"


def test_a_held_queue_claims_nothing() -> None:
    held = [quota("a", min=4, max=8, stop_policy=StopPolicy.HOLD), quota("b", min=4, max=8)]
    book = _book(8, held, [*(pod(f"b{i}", "b", 1) for i in range(8)), _waiting("a1", "a", 4)])
    assert book.view("default").standing.overuse == ()
    assert _plan(book) == ()


def test_a_drained_queue_loses_its_pods_newest_first_and_gangs_whole() -> None:
    specs = [quota("p", is_parent=True, stop_policy=StopPolicy.HOLD_AND_DRAIN), quota("a", parent="p"), quota("b")]
    book = _book(20, specs, [pod("1", "a", 1, since_ms=1), pod("2", "a", 1, since_ms=2), *_gang("g", 2, 2, "a")])
    book.set_pod(pod("other", "b", 1))
    running = [(str(book.quota_of(uid)), one) for uid, one in book.pods().items()]
    assert [[one.uid for one in each.pods] for each in drains(book.tree("default"), running)] == [
        ["2"],
        ["1"],
        ["g1", "g0"],
    ]


def test_a_gang_that_is_too_large_to_go_as_one_is_drained_pod_by_pod() -> None:
    book = _book(20, [quota("a", stop_policy=StopPolicy.HOLD_AND_DRAIN)], _gang("g", 3, 3, "a"))
    running = [("a", one) for one in book.pods().values()]
    assert [[one.uid for one in each.pods] for each in drains(book.tree("default"), running, ["g0", "g1", "g2"])] == [
        ["g2"],
        ["g1"],
        ["g0"],
    ]


def test_a_quota_that_is_gone_gives_nothing_back() -> None:
    planner = RevokePlanner(_book(8, TWO, []).tree("default"), {"cpu": 8000}, [], 0)
    assert planner.plan(["deleted", "a"]) == ()


_SIZES = st.lists(st.integers(1, 4), max_size=8)


@given(_SIZES, st.integers(0, 8), st.integers(0, 6), st.integers(0, 6))
def test_revoking_ends_and_leaves_no_guarantee_unmet_that_it_could_meet(
    running: list[int], wanted: int, low_a: int, low_b: int
) -> None:
    total = max(sum(running), low_a + low_b, 1)
    specs = [quota("a", min=low_a, max=100), quota("b", min=low_b, max=100)]
    pods = [pod(f"b{i}", "b", cpu, since_ms=i) for i, cpu in enumerate(running)]
    book = _book(total, specs, [*pods, *(_waiting(f"a{i}", "a", 1) for i in range(wanted))])
    for _ in range(len(running) + 1):
        before = {view.spec.name: view for view in book.view("default").quotas}
        plan = _plan(book)
        if not plan:
            break
        for uid in _gone(plan):
            # An evicted pod waits again in its quota.
            book.set_pod(_waiting(f"{uid}-again", "b", book.pods()[uid].request["cpu"]))
            book.remove_pod(uid)
        after = {view.spec.name: view for view in book.view("default").quotas}
        assert after["a"].runtime == before["a"].runtime
    assert not _plan(book)
    now = {view.spec.name: view for view in book.view("default").quotas}
    owed = min(now["a"].request["cpu"], low_a)
    assert now["a"].runtime["cpu"] >= owed
    # Nobody below its min: what it is owed is idle, or was never used by the other.
    assert total - now["b"].used["cpu"] >= owed
