"""``python -m cotenant_agent``."""

import asyncio
import resource
import sys

from cotenant_agent.config import AgentSettings
from cotenant_agent.node import build_agent
from cotenant_common.runtime.service import run_service
from cotenant_common.runtime.settings import load_settings

_DESCRIPTORS = 65_536


def main() -> int:
    # Each pod holds a handful of descriptors open for its life; the usual soft limit of 1,024 ends at 200 pods.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, _DESCRIPTORS)), hard))
    settings = load_settings(AgentSettings)
    return asyncio.run(run_service("agent", lambda context: build_agent(context, settings), settings))


if __name__ == "__main__":
    sys.exit(main())
