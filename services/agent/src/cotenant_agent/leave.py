"""``python -m cotenant_agent.leave``: end this node's pods, write every knob back, remove its groups.

With the agent's own settings, after the agent has stopped. The way out for an agent that no stack command manages: a
container, a systemd unit.
"""

import asyncio
import sys

from cotenant_agent.config import AgentSettings
from cotenant_agent.node import NodeEnd, end_node
from cotenant_common.runtime.service import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_OK
from cotenant_common.runtime.settings import SettingsError, load_settings

_GRACE_MS = 30_000
"""Kubernetes' own default; the record of a container does not hold what its manifest said."""


def sentence(node: str, end: NodeEnd) -> str:
    faults = [
        *([f"{end.processes_left} processes do not end"] if end.processes_left else []),
        *(["a cgroup is still in use"] if end.groups_removed is False else []),
        *end.restored.differences,
    ]
    done = f"{node}: {end.pods_stopped} pods stopped, {end.restored.written_back} knobs written back"
    return f"{done}, but: {'; '.join(faults)}" if faults else done


def leave(settings: AgentSettings) -> NodeEnd:
    return asyncio.run(end_node(settings, _GRACE_MS))


def main() -> int:
    try:
        settings = load_settings(AgentSettings)
    except SettingsError as error:
        sys.stderr.write(f"agent: {error}\n")
        return EXIT_BAD_INPUT
    end = leave(settings)
    sys.stdout.write(sentence(settings.node, end) + "\n")
    return EXIT_OK if end.clean else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
