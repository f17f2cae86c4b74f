"""Fair share of one resource dimension among the children of one parent. Integers only; nothing is rounded away."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """What one child brings to the division.

    ``request`` is already limited by the child's max. ``guarantee`` is a floor that scaling does not touch.
    A child that does not lend keeps its min even when it asks for less.
    """

    name: str
    weight: int
    request: int
    min: int
    guarantee: int = 0
    lends: bool = True


def scale_mins(total: int, mins: Mapping[str, int], fixed: Collection[str] = ()) -> dict[str, int]:
    """Shrink mins in proportion when together they pass the total; those in ``fixed`` keep theirs.

    Rounded down: what that leaves stays in the pool of ``fair_share``.
    """
    wanted = sum(mins.values())
    if wanted <= total:
        return dict(mins)
    kept = sum(mins[name] for name in fixed)
    rest, scalable = max(0, total - kept), wanted - kept
    return {name: low if name in fixed else (rest * low // scalable if scalable else 0) for name, low in mins.items()}


def fair_share(total: int, claims: Sequence[Claim], *, scale_min: bool = True) -> dict[str, int]:
    """Runtime by name (Koordinator's ElasticQuota runtime calculation).

    Each child first gets its floor, or less when it asks for less and lends the rest. What remains is the pool:
    it goes to the hungry by weight, those who are full give their surplus back, until nobody is hungry or nothing is
    left. A pool that nobody may take stays idle.
    """
    mins = {claim.name: claim.min for claim in claims}
    floors = scale_mins(total, mins) if scale_min else mins
    shares: dict[str, int] = {}
    hungry: list[Claim] = []
    for claim in claims:
        floor = max(floors[claim.name], claim.guarantee)
        if claim.request > floor:
            hungry.append(claim)
            shares[claim.name] = floor
        else:
            shares[claim.name] = claim.request if claim.lends else floor
    pool = total - sum(shares.values())
    pool = _feed(pool, shares, [(claim.name, claim.weight, claim.request) for claim in hungry])
    # Scaling counted the mins of lenders that ask for little. What they leave belongs first to those whose own min was
    # cut, whatever their weight: a weight of 0 forbids borrowing, not one's own min.
    _feed(pool, shares, [(claim.name, claim.min, min(claim.min, claim.request)) for claim in hungry])
    return shares


def _feed(pool: int, shares: dict[str, int], hungry: Sequence[tuple[str, int, int]]) -> int:
    """Share the pool among (name, weight, ceiling) by weight, round by round; return what is left."""
    open_claims = [claim for claim in hungry if claim[1] > 0 and shares[claim[0]] < claim[2]]
    while pool > 0 and open_claims:
        portions = divide(pool, [(name, weight) for name, weight, _ in open_claims])
        pool = 0
        still_open = []
        for (name, weight, ceiling), portion in zip(open_claims, portions, strict=True):
            surplus = shares[name] + portion - ceiling
            shares[name] += portion
            if surplus < 0:
                still_open.append((name, weight, ceiling))
            else:
                shares[name] = ceiling
                pool += surplus
        open_claims = still_open
    return max(pool, 0)


def divide(amount: int, weights: Sequence[tuple[str, int]]) -> list[int]:
    """Split an amount by weight into integers that sum to it exactly (largest remainder, ties by name)."""
    total = sum(weight for _, weight in weights)
    portions = [amount * weight // total for _, weight in weights]
    residual = amount - sum(portions)
    if residual:
        by_remainder = sorted(range(len(weights)), key=lambda i: (-(amount * weights[i][1] % total), weights[i][0]))
        # Fewer residual units than nonzero remainders: none of them reaches a weight of 0.
        for index in by_remainder[:residual]:
            portions[index] += 1
    return portions
