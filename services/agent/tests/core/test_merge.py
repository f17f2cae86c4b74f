from cotenant_agent.core.merge import CpuLimit, CpuWish, WishSource, merge
from cotenant_common.model.reasons import ReasonCode


def wish(source, limit):
    return CpuWish(source, limit, ReasonCode.SUPPRESSED, f"{source} wants {limit}")


def test_the_smallest_wish_wins_with_its_reason():
    limit = merge([wish(WishSource.SUPPRESS, 900), wish(WishSource.GUARD, 400)])
    assert (limit.limit_milli, limit.source, limit.message) == (400, WishSource.GUARD, "guard wants 400")


def test_on_a_tie_the_earlier_wish_is_named():
    assert merge([wish(WishSource.SUPPRESS, 5), wish(WishSource.GUARD, 5)]).source is WishSource.SUPPRESS


def test_no_wish_is_no_limit():
    assert merge([]) == CpuLimit(None)
