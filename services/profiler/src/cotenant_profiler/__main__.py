"""``python -m cotenant_profiler``: read settings, connect, run until told to stop."""

import asyncio
import sys

from cotenant_common.runtime.service import run_service
from cotenant_common.runtime.settings import SettingsError, load_settings
from cotenant_profiler.app import ProfilerService
from cotenant_profiler.config import ProfilerSettings


def main() -> int:
    try:
        settings = load_settings(ProfilerSettings)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    return asyncio.run(run_service("profiler", lambda context: ProfilerService(context, settings), settings))


if __name__ == "__main__":
    raise SystemExit(main())
