"""The machine code behind ``kernels``: plain loops over chunks of rows that the compiler turns into vector code.

Amounts are whole numbers below 2^53 held in doubles, because processors divide vectors of those and not of integers.
A quotient of two such numbers, rounded down, is exact: were it rounded up to the next whole number, the numerator
would have to be at least 2^53. Columns are cut out before each loop, since an index that may be negative stops the
compiler from using vectors.
"""

import importlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np

CHUNK: Final = 512
_PASSED: Final = -1
_GATE_PASS: Final = 0
_GATE_EXPIRED: Final = 2
_FAR: Final = 1e18
_SHOWN: Final = 5

# Places in ``terms``: how many needs, fit and balance triples follow the head; the load filter's switch and the
# estimate; the load score's weights, dominant weight, divisor and own weight; fit divisor, strategy, weight; balance.
_NEEDS, _FITS, _BALANCES, _JUDGED, _ESTIMATE, _WEIGHTS, _DOMINANT, _DIVISOR, _LOAD = 0, 1, 2, 3, 4, 6, 8, 9, 10
_FIT_DIVISOR, _PACKS, _FIT, _BALANCE, _TRIPLES = 11, 12, 13, 14, 15


def _compiled(function: Callable[..., Any]) -> Any:
    """Kept on disk where that is possible: compiling takes seconds, loading half of one."""
    numba = importlib.import_module("numba")
    options = {"boundscheck": False, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        # numba's word for a source tree and a home directory that are both read-only.
        return numba.njit(**options)(function)


def _fits(n: int, lo: int, job: Any, ok: Any) -> None:
    allocatable, requested, pods_line, terms, begin, end = job
    for j in range(begin, end, 3):
        line, amount = int(terms[j]), terms[j + 1]
        offered, taken = allocatable[line, lo : lo + n], requested[line, lo : lo + n]
        # A node that states no pod count sets no limit on it; every other dimension must be stated to be given away.
        unstated = _FAR if line == pods_line else -1.0
        for k in range(n):
            most = float(offered[k])
            most = unstated if most == -1.0 else most
            ok[k] = 0.0 if float(taken[k]) + amount > most else ok[k]


def _cools(n: int, lo: int, job: Any, cool: Any) -> None:
    """round(100 × used / capacity) > limit, without a division."""
    capacity, judged, limit, gate, asks, estimates = job
    for j in range(2):
        caps, used, limits = capacity[j, lo : lo + n], judged[asks, j, lo : lo + n], limit[asks, j, lo : lo + n]
        estimate = estimates[j]
        for k in range(n):
            cap, most = float(caps[k]), float(limits[k])
            over = (float(used[k]) + estimate) * 200.0 + cap - (most + 1.0) * 2.0 * cap
            over = over if most > 0.0 else -1.0
            over = over if cap > 0.0 else -1.0
            cool[k] = 0.0 if over >= 0.0 else cool[k]
    gates = gate[asks, lo : lo + n]
    for k in range(n):
        state = float(gates[k])
        kept = 1.0 if state == _GATE_PASS else cool[k]
        cool[k] = 0.0 if state == _GATE_EXPIRED else kept


def _load_points(n: int, lo: int, job: Any, temporary: Any, points: Any) -> None:
    capacity, scored, fresh, asks, estimates, weights, dominant, divisor, weight = job
    total, least = temporary[0], temporary[1]
    for k in range(n):
        total[k], least[k] = 0.0, _FAR
    for j in range(2):
        caps, used, estimate, own = capacity[j, lo : lo + n], scored[asks, j, lo : lo + n], estimates[j], weights[j]
        for k in range(n):
            cap = float(caps[k])
            share = np.floor(max(cap - float(used[k]) - estimate, 0.0) * 100.0 / max(cap, 1.0))
            total[k] += share * own
            least[k] = min(least[k], share)
    known = fresh[lo : lo + n]
    for k in range(n):
        found = np.floor((total[k] + dominant * least[k]) / divisor) * weight
        points[k] += found if known[k] else 0.0


def _fit_points(n: int, lo: int, job: Any, temporary: Any, points: Any) -> None:
    allocatable, requested, terms, begin, end, divisor, packs, weight = job
    total = temporary[0]
    for k in range(n):
        total[k] = 0.0
    for j in range(begin, end, 3):
        line, amount, own = int(terms[j]), terms[j + 1], terms[j + 2]
        offered, taken = allocatable[line, lo : lo + n], requested[line, lo : lo + n]
        for k in range(n):
            most, used = max(float(offered[k]), 0.0), float(taken[k]) + amount
            packed = used if used <= most else 0.0
            counted = packed if packs else max(most - used, 0.0)
            total[k] += np.floor(counted * 100.0 / max(most, 1.0)) * own
    for k in range(n):
        points[k] += np.floor(total[k] / divisor) * weight


def _balance_points(n: int, lo: int, job: Any, temporary: Any, points: Any) -> None:
    allocatable, requested, terms, begin, end, weight = job
    fullest, emptiest = temporary[0], temporary[1]
    for k in range(n):
        fullest[k], emptiest[k] = -_FAR, _FAR
    for j in range(begin, end, 3):
        line, amount = int(terms[j]), terms[j + 1]
        offered, taken = allocatable[line, lo : lo + n], requested[line, lo : lo + n]
        for k in range(n):
            share = min(np.floor((float(taken[k]) + amount) * 1000.0 / max(float(offered[k]), 1.0)), 1000.0)
            fullest[k] = max(fullest[k], share)
            emptiest[k] = min(emptiest[k], share)
    for k in range(n):
        points[k] += (100.0 - np.floor((fullest[k] - emptiest[k]) / 20.0)) * weight


fits, cools, load_points, fit_points, balance_points = (
    _compiled(each) for each in (_fits, _cools, _load_points, _fit_points, _balance_points)
)


def _chunk(  # noqa: PLR0913, PLR0917 - columns, each for itself, are what the compiler can work with
    lo: int, n: int, base: Any, found: Any, resources: Any, load: Any, terms: Any, first: int, t: Any
) -> None:
    base_verdict, base_points = base[0][lo : lo + n], base[1][lo : lo + n]
    verdict, points = found[0][lo : lo + n], found[1][lo : lo + n]
    allocatable, requested, pods_line = resources
    capacity, judged, limit, scored, gate, fresh, asks = load
    estimates = terms[_ESTIMATE : _ESTIMATE + 2]
    needs = _TRIPLES + 3 * int(terms[_NEEDS])
    fit = needs + 3 * int(terms[_FITS])
    balanced = fit + 3 * int(terms[_BALANCES])
    ok, cool, sums = t[0], t[1], t[2]
    rest = (t[3], t[4])
    for k in range(n):
        ok[k] = 1.0 if base_verdict[k] == _PASSED else 0.0
        cool[k], sums[k] = 1.0, float(base_points[k])
    fits(n, lo, (allocatable, requested, pods_line, terms, _TRIPLES, needs), ok)
    if terms[_JUDGED] > 0.0:
        cools(n, lo, (capacity, judged, limit, gate, asks, estimates), cool)
    if terms[_LOAD] > 0.0:
        own = (terms[_WEIGHTS : _WEIGHTS + 2], terms[_DOMINANT], terms[_DIVISOR], terms[_LOAD])
        load_points(n, lo, (capacity, scored, fresh, asks, estimates, *own), rest, sums)
    if terms[_FIT] > 0.0:
        own_fit = (terms[_FIT_DIVISOR], terms[_PACKS] > 0.0, terms[_FIT])
        fit_points(n, lo, (allocatable, requested, terms, needs, fit, *own_fit), rest, sums)
    if terms[_BALANCE] > 0.0:
        balance_points(n, lo, (allocatable, requested, terms, fit, balanced, terms[_BALANCE]), rest, sums)
    for k in range(n):
        points[k] = np.int64(sums[k] if ok[k] * cool[k] > 0.0 else -1.0)
    for k in range(n):
        before = base_verdict[k]
        refused = first if ok[k] == 0.0 else (first + 1 if cool[k] == 0.0 else _PASSED)
        verdict[k] = refused if before == _PASSED else before


chunk = _compiled(_chunk)


def _refresh(  # noqa: PLR0913, PLR0917 - as above
    end: int, rows: Any, base_verdict: Any, base_points: Any, verdict: Any, points: Any,
    allocatable: Any, requested: Any, capacity: Any, judged: Any, limit: Any, scored: Any, gate: Any, fresh: Any,
    asks: int, pods_line: int, terms: Any, first: int,
) -> None:  # fmt: skip
    base, found = (base_verdict, base_points), (verdict, points)
    resources = (allocatable, requested, pods_line)
    load = (capacity, judged, limit, scored, gate, fresh, asks)
    temporary = (np.empty(CHUNK), np.empty(CHUNK), np.empty(CHUNK), np.empty(CHUNK), np.empty(CHUNK))
    if end > 0:
        for lo in range(0, end, CHUNK):
            chunk(lo, min(CHUNK, end - lo), base, found, resources, load, terms, first, temporary)
    else:
        for row in rows:
            chunk(row, 1, base, found, resources, load, terms, first, temporary)


def _select(points: Any, hashes: Any, mine: Any, best: Any) -> int:
    """Fill ``best``; return how many rows are feasible. One pass: hardly any row gets past the first comparison."""
    feasible = 0
    kept = 0
    for row in range(len(points)):
        here = points[row]
        if here < 0:
            continue
        feasible += 1
        if kept == _SHOWN:
            last = best[_SHOWN - 1]
            if here < points[last] or (here == points[last] and hashes[row] ^ mine >= hashes[last] ^ mine):
                continue
        place = kept if kept < _SHOWN else _SHOWN - 1
        while place > 0:
            ahead = best[place - 1]
            if points[ahead] > here or (points[ahead] == here and hashes[ahead] ^ mine <= hashes[row] ^ mine):
                break
            best[place] = ahead
            place -= 1
        best[place] = row
        kept = min(kept + 1, _SHOWN)
    return feasible


refresh = _compiled(_refresh)
select = _compiled(_select)
