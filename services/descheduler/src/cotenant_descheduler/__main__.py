"""``python -m cotenant_descheduler``."""

import asyncio
import sys

from cotenant_common.runtime.service import run_service
from cotenant_common.runtime.settings import load_settings

from cotenant_descheduler.app import SERVICE, DeschedulerService
from cotenant_descheduler.config import DeschedulerSettings


def main() -> int:
    settings = load_settings(DeschedulerSettings)
    return asyncio.run(run_service(SERVICE, lambda context: DeschedulerService(context, settings), settings))


if __name__ == "__main__":
    sys.exit(main())
