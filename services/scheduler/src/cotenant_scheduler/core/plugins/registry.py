"""The plugins that ship, in order, and how a profile chooses among them and those from outside."""

from collections.abc import Mapping, Sequence
from typing import Final

from cotenant_scheduler.core.cycle import Plugins
from cotenant_scheduler.core.plugins.fit_scores import (
    BalancedAllocation,
    NodeResourcesFitPlus,
    NodeResourcesFitScore,
)
from cotenant_scheduler.core.plugins.inter_pod_affinity import InterPodAffinity
from cotenant_scheduler.core.plugins.interface import (
    Plugin,
    PodFilter,
    PodScore,
    Preference,
    ShapeFilter,
    ShapeScore,
)
from cotenant_scheduler.core.plugins.interference import InterferenceAware
from cotenant_scheduler.core.plugins.load_aware import LoadAware
from cotenant_scheduler.core.plugins.node_affinity import NodeAffinity
from cotenant_scheduler.core.plugins.node_fit import NodeFit
from cotenant_scheduler.core.plugins.node_ports import NodePorts
from cotenant_scheduler.core.plugins.node_unschedulable import NodeUnschedulable
from cotenant_scheduler.core.plugins.scarce_resources import ScarceResourceAvoidance
from cotenant_scheduler.core.plugins.scheduling_hint import SchedulingHint
from cotenant_scheduler.core.plugins.taint_toleration import TaintToleration
from cotenant_scheduler.core.plugins.topology_spread import PodTopologySpread
from cotenant_scheduler.core.profile import PluginChoice

WEIGHTS: Final[Mapping[str, int]] = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "InterPodAffinity": 2,
    "PodTopologySpread": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "LoadAwareScheduling": 1,
    "NodeResourcesFitPlus": 0,
    "ScarceResourceAvoidance": 0,
    "InterferenceAware": 0,
}
"""Kubernetes' own; LoadAware counts as much as fit. 0: has no say until a profile gives it a weight."""


FILTERS: Final = (
    "NodeUnschedulable",
    "NodeAffinity",
    "SchedulingHint",
    "TaintToleration",
    "NodeResourcesFit",
    "LoadAwareScheduling",
    "NodePorts",
    "InterPodAffinity",
    "PodTopologySpread",
)


def default_plugins(choice: PluginChoice | None = None, outside: Sequence[Plugin] = ()) -> Plugins:
    """Plugins from outside come last, in the order given; a weight of 0 leaves a score out."""
    choice = choice or PluginChoice()
    plugins = [*_built_in(choice), *outside]
    return Plugins(
        filters=[each for each in plugins if isinstance(each, ShapeFilter) and each.name not in choice.filters_off],
        scores=[each for each in plugins if isinstance(each, ShapeScore) and each.weight > 0],
        pod_filters=[each for each in plugins if isinstance(each, PodFilter) and each.name not in choice.filters_off],
        pod_scores=[each for each in plugins if isinstance(each, PodScore) and each.weight > 0],
        preferences=[each for each in plugins if isinstance(each, Preference)],
    )


def _built_in(choice: PluginChoice) -> list[Plugin]:
    def weight(name: str) -> int:
        return choice.weights.get(name, WEIGHTS[name])

    return [
        NodeUnschedulable(),
        NodeAffinity(weight("NodeAffinity")),
        SchedulingHint(choice.most_hint_nodes),
        TaintToleration(weight("TaintToleration")),
        NodeFit(),
        LoadAware(weight("LoadAwareScheduling")),
        NodePorts(),
        NodeResourcesFitScore(weight("NodeResourcesFit"), choice.fit_strategy, choice.fit_weights),
        BalancedAllocation(weight("NodeResourcesBalancedAllocation")),
        NodeResourcesFitPlus(weight("NodeResourcesFitPlus"), choice.fit_plus),
        ScarceResourceAvoidance(weight("ScarceResourceAvoidance"), choice.scarce),
        InterferenceAware(weight("InterferenceAware")),
        InterPodAffinity(weight("InterPodAffinity")),
        PodTopologySpread(weight("PodTopologySpread")),
    ]
