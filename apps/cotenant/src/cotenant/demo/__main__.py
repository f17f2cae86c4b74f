"""`python -m cotenant.demo`: the demo without the rest of the command line."""

import argparse
import asyncio
import sys
from pathlib import Path

from cotenant.demo import DemoOptions, run_demo
from cotenant.errors import CotenantError


def main() -> int:
    parser = argparse.ArgumentParser(prog="cotenant demo", description="Show co-location and measure it.")
    parser.add_argument("--rounds", type=int, default=2, help="rounds over all four arms")
    parser.add_argument("--quick", action="store_true", help="one short round; its figures do not hold")
    parser.add_argument("--yes", action="store_true", help="do not ask before root is used")
    parser.add_argument("--seed", type=int, default=1, help="seed of the arrivals")
    parser.add_argument("--output-dir", type=Path, default=Path(), help="where demo-result.json and demo-result.svg go")
    parser.add_argument("--examples", type=Path, help="folder of the example programs")
    try:
        return asyncio.run(run_demo(DemoOptions(**vars(parser.parse_args()))))
    except CotenantError as error:
        print(f"cotenant: {error}", file=sys.stderr)  # noqa: T201 - this is a command
        return int(error.exit_status)


if __name__ == "__main__":
    sys.exit(main())
