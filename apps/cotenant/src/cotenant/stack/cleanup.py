"""After the agent is gone: end its pods, write every knob back, remove its groups. The same after ``kill -9``."""

import asyncio
import shutil
from typing import Final

from cotenant.stack.home import StackHome, StackRecord
from cotenant_agent.config import AgentSettings
from cotenant_agent.node import NodeEnd, end_node

DEFAULT_GRACE_S: Final = 30.0
"""Kubernetes' own default; the record of a container does not hold what its manifest said."""


def clean_node(home: StackHome, record: StackRecord, grace_s: float | None) -> NodeEnd:
    """Blocking; the agent of this home must have stopped before."""
    settings = AgentSettings(node=record.node, state_dir=home.agent, cgroup_root=record.cgroup_root)
    ended = asyncio.run(end_node(settings, round(1000 * (DEFAULT_GRACE_S if grace_s is None else grace_s))))
    if ended.clean:
        # Forgotten, so that a stack that kept its objects starts their pods afresh.
        for directory in ("pods", "specs"):
            shutil.rmtree(home.agent / directory, ignore_errors=True)
    return ended
