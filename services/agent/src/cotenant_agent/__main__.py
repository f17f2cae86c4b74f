"""``python -m cotenant_agent``."""

import resource
import sys
from typing import Final

from cotenant_agent.config import AgentSettings
from cotenant_agent.node import build_agent
from cotenant_common.runtime.service import main

_DESCRIPTORS: Final = 65_536


def raise_descriptor_limit() -> None:
    """Each pod holds a handful of descriptors open for its life; the usual soft limit of 1,024 ends at 200 pods."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, _DESCRIPTORS)), hard))


if __name__ == "__main__":
    raise_descriptor_limit()
    sys.exit(main(build_agent, AgentSettings))
