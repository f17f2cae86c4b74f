from hypothesis import given
from hypothesis import strategies as st

from cotenant_quota.core.fair_share import Claim, divide, fair_share, scale_mins


def _four(weight_of_n4: int, guarantee_of_n4: int = 0) -> list[int]:
    claims = [
        Claim("n1", 40, 5, 10),
        Claim("n2", 60, 20, 15),
        Claim("n3", 50, 40, 20),
        Claim("n4", weight_of_n4, 70, 15, guarantee_of_n4),
    ]
    return list(fair_share(100, claims).values())


def test_surplus_of_the_satisfied_goes_to_the_hungry_by_weight() -> None:
    assert _four(80) == [5, 20, 35, 40]


def test_weight_zero_borrows_nothing_and_the_rest_stays_idle() -> None:
    assert _four(0) == [5, 20, 40, 15]


def test_guarantee_is_a_floor_whatever_the_weight() -> None:
    assert _four(0, guarantee_of_n4=45) == [5, 20, 30, 45]


def test_whole_devices_are_shared_without_loss_and_ties_go_by_name() -> None:
    mins = [8] * 8 + [7] * 2
    claims = [Claim("donor", 3, 0, 3)] + [Claim(f"q{i}", 1, 100, low) for i, low in enumerate(mins)]
    shares = fair_share(81, claims)
    assert sum(shares.values()) == 81
    assert [shares[f"q{i}"] - low for i, low in enumerate(mins)] == [1, 1, 1] + [0] * 7


def test_a_quota_that_does_not_lend_keeps_its_min() -> None:
    # The request of such a quota is at least its min by then.
    assert fair_share(3, [Claim("a", 3, 1, 1, lends=False), Claim("b", 3, 3, 1)]) == {"a": 1, "b": 2}


def test_lending_has_effect() -> None:
    assert fair_share(3, [Claim("a", 3, 0, 1), Claim("b", 3, 3, 1)]) == {"a": 0, "b": 3}


def test_mins_scale_in_proportion_and_fixed_ones_do_not() -> None:
    mins = {"1": 50, "2": 50, "3": 50}
    assert scale_mins(200, mins, fixed=("1",)) == {"1": 50, "2": 50, "3": 50}
    assert scale_mins(100, mins, fixed=("1",)) == {"1": 50, "2": 25, "3": 25}
    assert scale_mins(50, mins, fixed=("1",)) == {"1": 50, "2": 0, "3": 0}


def test_what_scaling_rounds_off_is_not_lost() -> None:
    claims = [Claim(name, 1, 200_000, 100_000) for name in "abc"]
    assert scale_mins(200_000, {claim.name: claim.min for claim in claims}) == dict.fromkeys("abc", 66_666)
    assert fair_share(200_000, claims) == {"a": 66_667, "b": 66_667, "c": 66_666}


def test_a_min_cut_by_scaling_is_made_good_even_at_weight_zero() -> None:
    claims = [Claim("idle", 1, 0, 100), Claim("busy", 0, 200, 100)]
    assert fair_share(100, claims) == {"idle": 0, "busy": 100}


def test_without_scaling_guarantees_may_pass_the_total() -> None:
    claims = [Claim("p", 300, 600, 300)]
    assert fair_share(200, claims, scale_min=False) == {"p": 300}
    assert fair_share(200, claims) == {"p": 200}


@given(st.integers(0, 10**15), st.lists(st.integers(1, 10**13), min_size=1, max_size=8))
def test_division_is_exact_and_within_one_unit_of_the_real_share(amount: int, weights: list[int]) -> None:
    portions = divide(amount, [(f"q{i}", weight) for i, weight in enumerate(weights)])
    total = sum(weights)
    assert sum(portions) == amount
    assert all(
        abs(portion * total - amount * weight) < total for portion, weight in zip(portions, weights, strict=True)
    )


@st.composite
def _groups(draw: st.DrawFn) -> tuple[int, list[Claim]]:
    size = draw(st.integers(1, 7))
    claims = []
    for index in range(size):
        high = draw(st.integers(0, 60))
        low = draw(st.integers(0, high))
        lends = draw(st.booleans())
        asked = draw(st.integers(0, 80))
        request = min(high, asked if lends else max(asked, low))
        claims.append(Claim(f"q{index}", draw(st.integers(0, 9)), request, low, 0, lends))
    return draw(st.integers(0, 200)), claims


def _unit_by_unit(total: int, claims: list[Claim]) -> dict[str, int]:
    """The obvious model: hand out floors, then whole rounds by exact fractions, units decided by largest remainder."""
    from fractions import Fraction

    wanted = sum(claim.min for claim in claims)
    floors = {c.name: c.min if wanted <= total else total * c.min // wanted for c in claims}
    shares = {c.name: min(floors[c.name], c.request) if c.lends else floors[c.name] for c in claims}
    for weight_of, ceiling_of in (
        (lambda c: c.weight, lambda c: c.request),
        (lambda c: c.min, lambda c: min(c.min, c.request)),
    ):
        while True:
            pool = total - sum(shares.values())
            hungry = [c for c in claims if weight_of(c) and shares[c.name] < ceiling_of(c)]
            if pool <= 0 or not hungry:
                break
            weights = sum(weight_of(c) for c in hungry)
            exact = {c.name: Fraction(pool * weight_of(c), weights) for c in hungry}
            given = {name: int(share) for name, share in exact.items()}
            for _ in range(pool - sum(given.values())):
                name = min(exact, key=lambda n: (given[n] - exact[n], n))
                given[name] += 1
            for claim in hungry:
                shares[claim.name] = min(shares[claim.name] + given[claim.name], ceiling_of(claim))
    return shares


@given(_groups())
def test_equals_the_obvious_model(group: tuple[int, list[Claim]]) -> None:
    total, claims = group
    assert fair_share(total, claims) == _unit_by_unit(total, claims)


@given(_groups())
def test_never_gives_more_than_the_total_nor_outside_the_bounds(group: tuple[int, list[Claim]]) -> None:
    total, claims = group
    shares = fair_share(total, claims)
    assert sum(shares.values()) <= total
    fits = sum(claim.min for claim in claims) <= total
    for claim in claims:
        assert shares[claim.name] <= max(claim.request, claim.min if not claim.lends else 0)
        if fits:
            assert shares[claim.name] >= min(claim.request, claim.min)


@given(_groups(), st.randoms(use_true_random=False))
def test_order_of_the_claims_does_not_matter(group: tuple[int, list[Claim]], random) -> None:  # type: ignore[no-untyped-def]
    total, claims = group
    shuffled = list(claims)
    random.shuffle(shuffled)
    assert fair_share(total, claims) == fair_share(total, shuffled)


@given(_groups())
def test_nothing_stays_idle_while_someone_with_weight_is_hungry(group: tuple[int, list[Claim]]) -> None:
    total, claims = group
    shares = fair_share(total, claims)
    if sum(shares.values()) < total:
        assert all(claim.weight == 0 or shares[claim.name] >= claim.request for claim in claims)
