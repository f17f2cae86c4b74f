"""``python -m cotenant_simulator FILE [-o json] [--seed N] [--seeds N] [--chaos SEED]``: without the command line."""

import argparse
import sys
from pathlib import Path

from cotenant_simulator import Many, simulate, simulate_chaos, simulate_many


def main() -> int:
    parser = argparse.ArgumentParser(prog="cotenant simulate")
    parser.add_argument("file")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--seed", type=int, help="instead of the file's")
    parser.add_argument("--seeds", type=int, metavar="N", help="this many seeds side by side")
    parser.add_argument("--chaos", type=int, metavar="SEED", help="random faults, invariants at every step")
    options = parser.parse_args()
    if options.chaos is not None:
        text, status = simulate_chaos(options.file, options.chaos)
    elif options.seeds is not None:
        many = Many([Path(options.file)], seed=options.seed, seeds=options.seeds, output=options.output)
        text, status = simulate_many(many)
    else:
        text, status = simulate(options.file, options.output, options.seed)
    sys.stdout.write(text)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
