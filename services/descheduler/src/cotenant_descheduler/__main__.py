"""``python -m cotenant_descheduler``."""

import sys

from cotenant_common.runtime.service import main
from cotenant_descheduler.app import DeschedulerService
from cotenant_descheduler.config import DeschedulerSettings

if __name__ == "__main__":
    sys.exit(main(DeschedulerService, DeschedulerSettings))
