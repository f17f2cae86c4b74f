"""Work for a trace that names machines only."""

from random import Random
from typing import Final

from cotenant_common.model.resources import CPU, MEMORY
from cotenant_simulator.replay.gpus import GPU
from cotenant_simulator.replay.model import Job, Machine

_MEAN_GAP_MS: Final = 30_000
_SHORTEST_MS: Final = 300_000
_LONGEST_MS: Final = 3_600_000
_ONE_IN: Final = 3


def gpu_jobs(machines: list[Machine], count: int, seed: int) -> list[Job]:
    """Every third is prod and may ask for a whole machine; the others are batch, a GPU each."""
    dice = Random(seed)  # noqa: S311 - arrivals, no secrets
    jobs: list[Job] = []
    at_ms = 0
    for number in range(count):
        at_ms += round(dice.expovariate(1 / _MEAN_GAP_MS))
        machine = dice.choice(machines)
        prod = number % _ONE_IN == 0
        gpus = dice.randint(1, machine.capacity[GPU]) if prod else 1
        share = machine.capacity[GPU] * 2
        jobs.append(
            Job(
                f"{'paid' if prod else 'spot'}-{number}",
                at_ms,
                dice.randint(_SHORTEST_MS, _LONGEST_MS),
                {
                    GPU: gpus,
                    CPU: gpus * machine.capacity[CPU] // share,
                    MEMORY: gpus * machine.capacity[MEMORY] // share,
                },
                band="prod" if prod else "batch",
            )
        )
    return jobs
