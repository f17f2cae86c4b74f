"""Quota admission: used + request ≤ min(runtime, max) along the chain, on shares that already know of the pod.

Quota owns the shares, the scheduler owns what is used. Amounts are masked to the keys of each quota's max.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cotenant_common.model.reasons import ReasonCode
from cotenant_common.model.resources import PODS, ResourceList, render
from cotenant_scheduler.core.charge import Charge
from cotenant_scheduler.core.request import PodRequest

ROOT: Final = "koordinator-root-quota"
DEFAULT: Final = "koordinator-default-quota"
_HOLDERS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """One quota as its tree's last status has it."""

    name: str
    max: ResourceList
    runtime: ResourceList
    min: ResourceList = field(default_factory=dict)
    parent: str | None = None
    allow_lent: bool = True
    held: bool = False
    """Takes nothing new; what runs stays charged."""

    def limit(self, name: str) -> int:
        """Runtime says what the share is now, max what it may ever be; a dimension without runtime has only max."""
        return min(self.runtime.get(name, self.max[name]), self.max[name])


@dataclass(frozen=True, slots=True)
class QuotaTree:
    """``specs_revision``: every spec up to it is accounted for in these shares."""

    tree: str
    generation: int
    specs_revision: int
    shares: Mapping[str, QuotaShare]


@dataclass(frozen=True, slots=True)
class QuotaObject:
    """What of an ElasticQuota object decides where pods belong."""

    name: str
    namespace: str
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Admitted:
    quota: str | None
    chain: tuple[str, ...] = ()


_UNLIMITED: Final = Admitted(None)


@dataclass(frozen=True, slots=True)
class NotCovered:
    """The shares do not know of the pod yet."""

    quota: str
    message: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuotaRefusal:
    quota: str
    code: ReasonCode
    message: str
    helps: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


Admission = Admitted | NotCovered | QuotaRefusal


class QuotaHomes:
    """Pod → quota: its label, a quota named like its namespace and living there, a quota that lists it, default."""

    def __init__(self, objects: Iterable[QuotaObject] = ()) -> None:
        self._names: set[str] = set()
        self._own: dict[str, str] = {}
        self._listed: dict[str, str] = {}
        for each in sorted(objects, key=lambda quota: quota.name):
            self._names.add(each.name)
            if each.name == each.namespace:
                self._own[each.namespace] = each.name
            for namespace in each.namespaces:
                self._listed.setdefault(namespace, each.name)

    def find(self, namespace: str, label: str | None) -> str | None:
        """None: the default quota. A label that names no quota falls back to it as well."""
        if label:
            return label if label in self._names and label != ROOT else None
        return self._own.get(namespace) or self._listed.get(namespace)

    def knows(self, name: str) -> bool:
        return name in self._names


@dataclass(slots=True)
class _Used:
    total: dict[str, int] = field(default_factory=dict)
    non_preemptible: dict[str, int] = field(default_factory=dict)
    holders: dict[str, Charge] = field(default_factory=dict)


class QuotaBook:
    """Shares by quota and what is charged against them. Test and charge happen in one step of one thread."""

    def __init__(self) -> None:
        self.homes = QuotaHomes()
        self._trees: dict[str, QuotaTree] = {}
        self._tree_of: dict[str, QuotaTree] = {}
        self._used: dict[str, _Used] = {}
        self._home_of: dict[str, str | None] = {}
        self._charges: dict[str, Charge] = {}
        self._found: dict[tuple[str, str | None], str | None] = {}

    @property
    def seen(self) -> bool:
        return bool(self._trees)

    def trees(self) -> Mapping[str, QuotaTree]:
        return self._trees

    def set_tree(self, tree: QuotaTree) -> tuple[str, ...]:
        """Take a newer status of one tree; return the quotas that may have more room now, sorted."""
        before = self._trees.get(tree.tree)
        if before is not None and tree.generation < before.generation:
            return ()
        self._trees[tree.tree] = tree
        self._found = {}
        links_before = {name: each.shares[name].parent for name, each in self._tree_of.items()}
        self._tree_of = {name: each for _, each in sorted(self._trees.items()) for name in each.shares}
        if links_before != {name: each.shares[name].parent for name, each in self._tree_of.items()}:
            self._charge_all_again()
            # A quota that moved takes what it uses off every quota it was under.
            return tuple(sorted(tree.shares))
        old = before.shares if before is not None else {}
        return tuple(sorted(name for name, share in tree.shares.items() if _rose(old.get(name), share)))

    def remove_tree(self, tree: str) -> None:
        if self._trees.pop(tree, None) is not None:
            self._found = {}
            self._tree_of = {name: each for _, each in sorted(self._trees.items()) for name in each.shares}
            self._charge_all_again()

    def set_homes(self, objects: Iterable[QuotaObject]) -> None:
        """A quota came or went: pods that sit in default move to it, pods of a quota that went move to default."""
        self.homes = QuotaHomes(objects)
        self._found = {}
        self._charge_all_again()

    def _charge_all_again(self) -> None:
        charges = list(self._charges.values())
        self._used, self._home_of, self._charges = {}, {}, {}
        for charge in charges:
            self.charge(charge)

    def charge(self, charge: Charge) -> None:
        home = self.home(charge.namespace, charge.quota_label) if charge.counted else None
        self._charges[charge.uid], self._home_of[charge.uid] = charge, home
        if home is not None:
            self._used.setdefault(home, _Used()).holders[charge.uid] = charge
            self._move(home, charge, +1)

    def discharge(self, charge: Charge) -> str | None:
        """Return the quota that has room again."""
        home = self._home_of.pop(charge.uid)
        del self._charges[charge.uid]
        if home is not None:
            del self._used[home].holders[charge.uid]
            self._move(home, charge, -1)
        return home

    def _move(self, home: str, charge: Charge, sign: int) -> None:
        amounts = countable(charge.requests)
        for name in self.chain(home):
            used = self._used.setdefault(name, _Used())
            _add(used.total, amounts, sign)
            if not charge.preemptible:
                _add(used.non_preemptible, amounts, sign)

    def holders(self, quota: str) -> Mapping[str, Charge]:
        """Who is charged to this very quota, by uid."""
        return self._used.get(quota, _Used()).holders

    def used(self, quota: str) -> dict[str, int]:
        """Masked to the keys of max where the quota is known."""
        total = self._used.get(quota, _Used()).total
        share = self.share(quota)
        return {name: value for name, value in sorted(total.items()) if value and (share is None or name in share.max)}

    def quotas(self) -> list[str]:
        return sorted({*self._tree_of, *self._used})

    def home(self, namespace: str, label: str | None) -> str | None:
        key = namespace, label
        if key not in self._found:
            found = self.homes.find(namespace, label)
            default = DEFAULT if DEFAULT in self._tree_of or self.homes.knows(DEFAULT) else None
            self._found[key] = found if found is not None else default
        return self._found[key]

    def share(self, quota: str) -> QuotaShare | None:
        tree = self._tree_of.get(quota)
        return tree.shares[quota] if tree is not None else None

    def chain(self, quota: str) -> tuple[str, ...]:
        """From the quota up; the root has no limit of its own. A cycle ends where it closes."""
        found: list[str] = []
        name: str | None = quota
        while name and name != ROOT and name not in found:
            found.append(name)
            share = self.share(name)
            name = share.parent if share is not None else None
        return tuple(found)

    def admit(self, pod: PodRequest) -> Admission:
        named = self.homes.find(pod.namespace, pod.quota_label)
        if named is None and not self.homes.knows(DEFAULT):
            # Nobody limits the default quota, so nothing has to be waited for: an idle stack binds at once.
            home = self.home(pod.namespace, pod.quota_label)
            return Admitted(home, self.chain(home)) if home else _UNLIMITED
        quota = named or DEFAULT
        if (gap := self._gap(quota, pod)) is not None:
            return gap
        chain, request = self.chain(quota), countable(pod.shape.request)
        if (refusal := self._held(chain)) is not None:
            return refusal
        for name in chain:
            if (refusal := self._over_limit(name, quota, request)) is not None:
                return refusal
        if not pod.preemptible and (refusal := self._over_min(quota, request)) is not None:
            return refusal
        return Admitted(quota, chain)

    def _gap(self, quota: str, pod: PodRequest) -> NotCovered | None:
        tree = self._tree_of.get(quota)
        if tree is None:
            text = (
                "the quota service has never published a share" if not self.seen else "its share is not published yet"
            )
            return NotCovered(quota, f"quota {quota}: {text}", {"specs_revision": None, "needed": pod.spec_revision})
        if tree.specs_revision < pod.spec_revision:
            return NotCovered(
                quota,
                f"quota {quota}: generation {tree.generation} accounts for specs up to revision "
                f"{tree.specs_revision}, this pod came with {pod.spec_revision}",
                {"specs_revision": tree.specs_revision, "needed": pod.spec_revision, "generation": tree.generation},
            )
        return None

    def _held(self, chain: Sequence[str]) -> QuotaRefusal | None:
        for name in chain:
            share = self.share(name)
            if share is not None and share.held:
                text = f"quota {name} is held: nothing new is admitted"
                return QuotaRefusal(chain[0], ReasonCode.QUOTA_HELD, text, "cotenant quota resume", {"quota": name})
        return None

    def _over_limit(self, name: str, quota: str, request: ResourceList) -> QuotaRefusal | None:
        share = self.share(name)
        if share is None:
            return None
        used = self._used.get(name, _Used()).total
        over = [
            key
            for key in sorted(share.max)
            if request.get(key, 0) > 0 and used.get(key, 0) + request[key] > share.limit(key)
        ]
        if not over:
            return None
        parts = ", ".join(
            f"{key} used {render(key, used.get(key, 0))} + requested {render(key, request[key])} "
            f"> {_limit_text(share, key)}"
            for key in over
        )
        owner = f"quota {name}" if name == quota else f"quota {name} (above {quota})"
        return QuotaRefusal(
            quota,
            ReasonCode.QUOTA_EXCEEDED,
            f"{owner}: {parts}; {self._held_by(name, over[0])}",
            self._what_would_help(share, over[0], request[over[0]], used.get(over[0], 0)),
            {
                "quota": name,
                "exceeded": {
                    key: {
                        "used": used.get(key, 0),
                        "request": request[key],
                        "limit": share.limit(key),
                        "runtime": share.runtime.get(key),
                        "max": share.max[key],
                    }
                    for key in over
                },
            },
        )

    def _over_min(self, quota: str, request: ResourceList) -> QuotaRefusal | None:
        """What cannot be taken back must be covered by what is guaranteed."""
        share = self.share(quota)
        if share is None:
            return None
        used = self._used.get(quota, _Used()).non_preemptible
        over = [
            key
            for key in sorted(share.max)
            if request.get(key, 0) > 0 and used.get(key, 0) + request[key] > share.min.get(key, 0)
        ]
        if not over:
            return None
        key = over[0]
        low = share.min.get(key, 0)
        return QuotaRefusal(
            quota,
            ReasonCode.QUOTA_NON_PREEMPTIBLE_EXCEEDS_MIN,
            f"quota {quota}: non-preemptible {key} used {render(key, used.get(key, 0))} + requested "
            f"{render(key, request[key])} > min {render(key, low)}",
            f"a preemptible pod, or min {key} of at least {render(key, used.get(key, 0) + request[key])}",
            {"quota": quota, "resource": key, "used": used.get(key, 0), "request": request[key], "min": low},
        )

    def _held_by(self, name: str, key: str) -> str:
        """The largest holders in the quota, or its children where it is a parent."""
        holders = [
            (charge.requests.get(key, 0), charge.key) for charge in self._used.get(name, _Used()).holders.values()
        ]
        holders += [
            (self._used[child].total.get(key, 0), f"quota {child}")
            for child, tree in sorted(self._tree_of.items())
            if tree.shares[child].parent == name and child in self._used
        ]
        largest = heapq.nsmallest(_HOLDERS_SHOWN, ((-held, who) for held, who in holders if held > 0))
        if not largest:
            return "nobody holds any of it"
        return "held by " + ", ".join(f"{who} {render(key, -held)}" for held, who in largest)

    def _what_would_help(self, share: QuotaShare, key: str, request: int, used: int) -> str:
        lacking = used + request - share.limit(key)
        if used + request > share.max[key]:
            return f"{render(key, lacking)} of {key} released in quota {share.name}, or a higher max"
        keeping = [
            f"{name} keeps {render(key, each.min.get(key, 0))} (not lendable)"
            for name, each in sorted(self._siblings(share).items())
            if not each.allow_lent and each.min.get(key, 0) > 0
        ]
        lent = f"; {', '.join(keeping)}" if keeping else ""
        return f"{render(key, lacking)} of {key} released in quota {share.name} or returned by its siblings{lent}"

    def _siblings(self, share: QuotaShare) -> dict[str, QuotaShare]:
        shares = self._tree_of[share.name].shares
        return {name: each for name, each in shares.items() if each.parent == share.parent and name != share.name}


def countable(requests: ResourceList) -> dict[str, int]:
    """Quotas count what pods ask for; the pod itself is a dimension of nodes only."""
    return {name: amount for name, amount in requests.items() if name != PODS}


def _limit_text(share: QuotaShare, key: str) -> str:
    runtime, most = share.runtime.get(key), share.max[key]
    if runtime is None or runtime >= most:
        return f"max {render(key, most)}"
    return f"runtime {render(key, runtime)} (max {render(key, most)})"


def _rose(old: QuotaShare | None, new: QuotaShare) -> bool:
    if old is None or new.parent != old.parent or (old.held and not new.held):
        return True
    keys = {*old.max, *new.max}
    return any(
        (key in old.max and key not in new.max)
        or (key in old.max and key in new.max and new.limit(key) > old.limit(key))
        or new.min.get(key, 0) > old.min.get(key, 0)
        for key in keys
    )


def _add(sums: dict[str, int], amounts: ResourceList, sign: int) -> None:
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0) + sign * amount
