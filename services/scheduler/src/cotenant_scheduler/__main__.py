"""``python -m cotenant_scheduler``."""

import sys

from cotenant_common.runtime.service import main
from cotenant_scheduler.app import SchedulerService
from cotenant_scheduler.config import SchedulerSettings

if __name__ == "__main__":
    sys.exit(main(SchedulerService, SchedulerSettings))
