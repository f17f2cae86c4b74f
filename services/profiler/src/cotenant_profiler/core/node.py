"""One node over time: its samples, its models, and the numbers last offered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cotenant_common.model.reasons import ReasonCode
from cotenant_common.model.resources import CPU, MEMORY, ResourceList
from cotenant_profiler.core.batch import Term, batch_terms
from cotenant_profiler.core.facts import LooseUsage, NodeFacts, PodFacts, show
from cotenant_profiler.core.mid import MidTerm, mid_terms
from cotenant_profiler.core.models import NodeModels
from cotenant_profiler.core.predictor import Forecast
from cotenant_profiler.core.smooth import Smoothed, SmoothPolicy, smooth
from cotenant_profiler.core.strategy import Strategy
from cotenant_profiler.core.usage import Sample, UsageWindow


@dataclass(frozen=True, slots=True)
class Tuning:
    """All in milliseconds. ``stale_ms`` bounds the strategy's own degradeTimeMinutes from above."""

    window_ms: int = 10_000
    stale_ms: int = 60_000
    rise_hold_ms: int = 10_000
    learn_ms: int = 60_000
    cold_start_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class Machine:
    """What a node is, apart from what runs on it. ``normalization_percent`` 120: its CPU does 1.2 times the work."""

    capacity: ResourceList
    allocatable: ResourceList
    reservation: ResourceList
    normalization_percent: int | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What may be sold a second time. None is *not sold*, which is not 0. ``degraded`` says why nothing is."""

    batch: ResourceList | None
    mid: ResourceList | None
    terms: tuple[Term, ...] = ()
    degraded: ReasonCode | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """All that an offer is made from, apart from the time and what was sold before."""

    machine: Machine
    pods: Sequence[PodFacts]
    strategy: Strategy
    average: Sample
    forecast: Forecast | None

    def same(self, other: "Asked") -> bool:
        mine, theirs = self.average, other.average
        return (
            (mine.node, mine.system, mine.pods) == (theirs.node, theirs.system, theirs.pods)
            and self.pods == other.pods
            and self.forecast == other.forecast
            and self.strategy is other.strategy
            and self.machine == other.machine
        )


@dataclass(frozen=True, slots=True)
class Rest:
    """An offer that is no longer on its way anywhere: the same question before ``until_ms`` gets it again."""

    offer: Offer
    asked: Asked
    until_ms: int

    def answers(self, asked: Asked, now_ms: int) -> bool:
        return now_ms < self.until_ms and self.asked.same(asked)


class NodeProfile:
    """Time is passed in: ``now_ms`` is when this service saw something, so a node's own clock cannot make it look
    fresh or stale."""

    def __init__(self, tuning: Tuning, now_ms: int) -> None:
        self._tuning = tuning
        self._window = UsageWindow(tuning.window_ms)
        self._models = NodeModels(interval_ms=tuning.learn_ms, cold_start_ms=tuning.cold_start_ms)
        self._measured = False
        # Until it is stale, a node that was not heard of yet is simply not known: this service may have just started.
        self._seen_ms = now_ms
        self._smoothed: dict[tuple[str, str], Smoothed] = {}
        self._evicting: dict[str, bool] = {}
        self._forecast: Forecast | None = None
        self._forecast_for: tuple[str, ...] | None = None
        self._rest: Rest | None = None
        self._moving = False

    @property
    def sampled_ms(self) -> int | None:
        """The newest sample's own time."""
        average = self._window.average()
        return None if average is None else average.at_ms

    def restore(self, band: str, sold: Mapping[str, int] | None, at_ms: int) -> None:
        """Continue from what was published before a restart, so that a rise waits as it would have."""
        self._rest = None
        for resource, value in (sold or {}).items():
            self._smoothed[band, resource] = Smoothed(value, at_ms)

    def observe(self, sample: Sample, now_ms: int) -> bool:
        """Take a sample; False when it is late or a repetition."""
        if not self._window.add(sample):
            return False
        if CPU in sample.system and MEMORY in sample.system:
            self._measured = True
            self._seen_ms = now_ms
        average = self._window.average()
        if average is not None and self._models.learn(average, now_ms):
            self._forecast_for = None
        return True

    def offer(self, machine: Machine, pods: Sequence[PodFacts], strategy: Strategy, now_ms: int) -> Offer | None:
        """What to sell now; None: nothing is known yet, so what was offered before still stands.

        While nothing changes the answer is the very same object.
        """
        if not strategy.enable:
            return self._withdraw(ReasonCode.COLOCATION_DISABLED, "colocation is switched off for this node")
        silent_ms = now_ms - self._seen_ms
        if silent_ms > min(self._tuning.stale_ms, strategy.degrade_ms):
            reason = ReasonCode.METRICS_EXPIRED if self._measured else ReasonCode.METRICS_MISSING
            return self._withdraw(reason, f"no complete usage sample for {silent_ms // 1000} s, so nothing is sold")
        average = self._window.average()
        if average is None or not self._measured:
            return None
        asked = Asked(machine, pods, strategy, average, self._forecast_of(pods, machine, now_ms))
        if self._rest is not None and self._rest.answers(asked, now_ms):
            return self._rest.offer
        offer = self._make(asked, now_ms)
        self._rest = None if self._moving else Rest(offer, asked, self._next_refresh_ms(offer, strategy))
        return offer

    def _make(self, asked: Asked, now_ms: int) -> Offer:
        facts, strategy = self._facts(asked), asked.strategy
        self._moving = False
        self._watch_eviction(facts, strategy)
        batch = {name: term for name, term in batch_terms(facts, strategy).items() if term is not None}
        mid = mid_terms(facts, strategy)
        sold_batch = self._sell("batch", {name: term.result for name, term in batch.items()}, strategy, now_ms)
        sold_mid = self._sell("mid", {name: term.result for name, term in mid.items()}, strategy, now_ms)
        message = self._explain(batch, mid, sold_batch, strategy)
        return Offer(sold_batch, sold_mid, tuple(batch.values()), message=message)

    def _next_refresh_ms(self, offer: Offer, strategy: Strategy) -> int:
        told = [
            self._smoothed[band, resource].published_ms
            for band, sold in (("batch", offer.batch), ("mid", offer.mid))
            for resource in sold or {}
        ]
        return min(told, default=0) + strategy.refresh_ms

    def _withdraw(self, reason: ReasonCode, message: str) -> Offer:
        # The next fresh sample is offered at once: what held before the silence says nothing about now.
        self._rest = None
        self._smoothed.clear()
        return Offer(None, None, degraded=reason, message=message)

    def _facts(self, asked: Asked) -> NodeFacts:
        machine, pods, average, forecast = asked.machine, asked.pods, asked.average, asked.forecast
        measured = [replace(pod, usage=average.pods[pod.uid].usage) if pod.uid in average.pods else pod for pod in pods]
        known = {pod.uid: None for pod in pods}
        return NodeFacts(
            capacity=machine.capacity,
            allocatable=machine.allocatable,
            system_usage=average.system,
            node_usage=average.node,
            reservation=machine.reservation,
            pods=measured,
            dangling=[LooseUsage(one.band, one.usage) for uid, one in average.pods.items() if uid not in known],
            prod_reclaimable=None if forecast is None else forecast.reclaimable,
            normalization_percent=machine.normalization_percent,
        )

    def _forecast_of(self, pods: Sequence[PodFacts], machine: Machine, now_ms: int) -> Forecast | None:
        """Percentiles cost more than everything else here, so they are taken anew only when something was learned or
        other pods run."""
        asked = tuple(pod.uid for pod in pods)
        if asked != self._forecast_for:
            self._forecast_for = asked
            self._forecast = self._models.forecast(pods, machine.allocatable, now_ms)
        return self._forecast

    def _watch_eviction(self, facts: NodeFacts, strategy: Strategy) -> None:
        """Between the two lines the answer stays what it was, or pods would be placed and evicted in turn."""
        for resource in (CPU, MEMORY):
            band, used = strategy.eviction.get(resource), facts.node_usage.get(resource)
            if band is None or used is None or not facts.capacity.get(resource):
                self._evicting[resource] = False
                continue
            percent = used * 100 // facts.capacity[resource]
            limit = band.lower_percent if self._evicting.get(resource) else band.threshold_percent
            self._evicting[resource] = percent >= limit

    def _sell(self, band: str, targets: Mapping[str, int], strategy: Strategy, now_ms: int) -> dict[str, int]:
        policy = SmoothPolicy(strategy.diff_ratio, self._tuning.rise_hold_ms, strategy.refresh_ms)
        sold = {}
        for resource, target in targets.items():
            wanted = 0 if self._evicting.get(resource) else target
            state = smooth(self._smoothed.get((band, resource)), wanted, now_ms, policy)
            self._smoothed[band, resource] = state
            # A rise goes on by itself, from one step to the next.
            self._moving |= state.rising_ms is not None or wanted > state.value
            sold[resource] = state.value
        return sold

    def _explain(
        self,
        batch: Mapping[str, Term],
        mid: Mapping[str, MidTerm],
        sold: Mapping[str, int],
        strategy: Strategy,
    ) -> str:
        parts = []
        for name, term in batch.items():
            text = term.message
            if self._evicting.get(name):
                text += f"; 0 is sold until {name} use falls below {strategy.eviction[name].lower_percent}%"
            elif sold[name] != term.result:
                text += f"; {show(name, sold[name])} is sold until the change lasts"
            parts.append(text)
        parts.extend(f"mid {term.message}" for term in mid.values() if term.result)
        return "; ".join(parts)
