"""``python -m cotenant_quota``: read settings, connect, run until told to stop."""

import asyncio
import sys

from cotenant_common.runtime.service import run_service
from cotenant_common.runtime.settings import SettingsError, load_settings
from cotenant_quota.app import QuotaService
from cotenant_quota.config import QuotaSettings


def main() -> int:
    try:
        settings = load_settings(QuotaSettings)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    return asyncio.run(run_service("quota", lambda context: QuotaService(context, settings), settings))


if __name__ == "__main__":
    raise SystemExit(main())
