"""``python -m cotenant_profiler``."""

import sys

from cotenant_common.runtime.service import main
from cotenant_profiler.app import ProfilerService
from cotenant_profiler.config import ProfilerSettings

if __name__ == "__main__":
    sys.exit(main(ProfilerService, ProfilerSettings))
