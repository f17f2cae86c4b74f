"""The plugins that ship, in order."""

from cotenant_scheduler.core.cycle import Plugins
from cotenant_scheduler.core.plugins.host_ports import HostPorts
from cotenant_scheduler.core.plugins.inter_pod_affinity import InterPodAffinity
from cotenant_scheduler.core.plugins.load_aware import LoadAware
from cotenant_scheduler.core.plugins.node_affinity import NodeAffinity
from cotenant_scheduler.core.plugins.node_fit import BalancedAllocation, LeastAllocated, NodeFit
from cotenant_scheduler.core.plugins.node_ready import NodeReady
from cotenant_scheduler.core.plugins.taint_toleration import TaintToleration
from cotenant_scheduler.core.plugins.topology_spread import TopologySpread


def default_plugins() -> Plugins:
    """Weights are Kubernetes' own; LoadAware counts as much as fit."""
    taints, affinity, load = TaintToleration(weight=3), NodeAffinity(weight=2), LoadAware(weight=1)
    around, spread = InterPodAffinity(weight=2), TopologySpread(weight=2)
    return Plugins(
        filters=(NodeReady(), affinity, taints, HostPorts(), NodeFit(), load),
        scores=(load, LeastAllocated(weight=1), BalancedAllocation(weight=1), affinity, taints),
        pod_filters=(around, spread),
        pod_scores=(around, spread),
    )
