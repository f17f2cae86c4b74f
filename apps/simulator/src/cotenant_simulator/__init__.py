"""Scenarios: any cluster, timeline and policy in one file, run by the production services in virtual time."""

from cotenant_simulator.chaos import simulate_chaos
from cotenant_simulator.errors import ScenarioError
from cotenant_simulator.run import Outcome, load, parse, run, simulate
from cotenant_simulator.seeds import Many, simulate_many

__all__ = [
    "Many",
    "Outcome",
    "ScenarioError",
    "load",
    "parse",
    "run",
    "simulate",
    "simulate_chaos",
    "simulate_many",
]
