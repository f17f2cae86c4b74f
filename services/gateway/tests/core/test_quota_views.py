from cotenant_common.contracts.messages.state import QuotaLoan, QuotaRuntime, QuotaTreeStatus
from cotenant_gateway.adapters.quotas import to_quotas
from cotenant_gateway.core.quota_views import Quotas, object_status, rows, what_it_lacks

MILLI = 1000


def _quota(name: str, low: int, high: int, used: int, runtime: int, **more: object) -> QuotaRuntime:
    amounts = {"min": low, "max": high, "used": used, "runtime": runtime}
    return QuotaRuntime(name=name, **{key: {"cpu": value * MILLI} for key, value in amounts.items()}, **more)  # type: ignore[arg-type]


def _quotas(*quotas: QuotaRuntime, loans: tuple[tuple[str, str, int], ...] = ()) -> Quotas:
    lent = [QuotaLoan(borrower=b, lender=a, resource="cpu", amount=n * MILLI) for b, a, n in loans]
    status = QuotaTreeStatus(
        tree="t", generation=1, specs_revision=1, bindings_revision=1, nodes_revision=1, total={"cpu": 10 * MILLI},
        quotas=list(quotas), loans=lent, computed_ms=0,
    )  # fmt: skip
    return to_quotas([status])


def _sentences(quotas: Quotas, name: str, cpu: int) -> list[str]:
    found = what_it_lacks(quotas, name, {"cpu": cpu * MILLI, "pods": 1})
    assert found is not None
    return list(found["sentences"])


def test_rows_say_who_lends_to_whom():
    quotas = _quotas(_quota("a", 4, 8, 1, 2), _quota("b", 4, 8, 6, 6, over_since_ms=5), loans=(("b", "a", 2),))
    a, b = rows(quotas)
    assert (a["lends_to"], a["lent"], a["borrowed"], a["state"]) == ({"b": {"cpu": 2000}}, {"cpu": 2000}, {}, "Open")
    assert (b["borrows_from"], b["borrowed"], b["state"], b["tree"]) == (
        {"a": {"cpu": 2000}}, {"cpu": 2000}, "Over", "t",
    )  # fmt: skip


def test_a_quota_at_its_max_lacks_what_its_own_pods_hold():
    assert _sentences(_quotas(_quota("a", 4, 4, 4, 4)), "a", 1) == [
        "quota a lacks 1 cpu: 4 used, max 4 by its own pods",
    ]


def test_a_share_that_is_too_small_names_who_holds_the_rest():
    quotas = _quotas(_quota("a", 0, 8, 2, 2), _quota("b", 4, 8, 6, 6), _quota("c", 4, 8, 2, 2))
    (sentence,) = _sentences(quotas, "a", 3)
    assert sentence == "quota a lacks 3 cpu: 2 used, its share is 2 now; the rest is held by b 6 (min 4), c 2 (min 4)"


def test_a_parent_that_is_full_is_named_with_the_children_that_fill_it():
    quotas = _quotas(
        _quota("p", 4, 6, 6, 6, is_parent=True),
        _quota("a", 2, 6, 1, 4, parent="p"),
        _quota("b", 2, 6, 5, 5, parent="p"),
    )
    assert _sentences(quotas, "a", 2) == ["quota p lacks 2 cpu: 6 used, max 6; held by b 5 (min 2), a 1 (min 2)"]


def test_what_is_lent_and_has_to_come_back_is_told():
    quotas = _quotas(_quota("a", 4, 8, 0, 4), _quota("b", 4, 8, 8, 4, over_since_ms=5), loans=(("b", "a", 4),))
    assert _sentences(quotas, "a", 4) == ["b uses 4 cpu that belong to a and has to give them back"]


def test_a_held_queue_says_so_at_every_level():
    quotas = _quotas(_quota("p", 4, 6, 0, 6, is_parent=True, stop_policy="Hold"), _quota("a", 2, 6, 0, 4, parent="p"))
    assert _sentences(quotas, "a", 1) == ["quota p is held: nothing new is admitted until it is resumed"]
    assert what_it_lacks(quotas, "unknown", {}) is None


def test_the_status_of_the_object_is_in_quantities():
    state = _quotas(_quota("a", 4, 8, 1, 2, problem="hangs nowhere")).states["a"]
    status = object_status(state)
    assert (status["used"], status["runtime"], status["state"]) == ({"cpu": "1"}, {"cpu": "2"}, "Detached")
    assert status["problem"] == "hangs nowhere"
