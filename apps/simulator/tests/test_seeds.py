from pathlib import Path

from cotenant_simulator import simulate_seeds
from cotenant_simulator.seeds import waiting_ms

SCENARIOS = Path(__file__).parents[3] / "scenarios"


def event(t_ms: int, kind: str, name: str = "a") -> dict[str, object]:
    return {"t_ms": t_ms, "type": kind, "object": f"Pod/default/{name}"}


def test_waiting_is_from_each_queueing_to_its_binding():
    events = [event(0, "pod.queued"), event(5, "pod.bound"), event(10, "pod.queued"), event(10, "pod.queued", "b")]
    assert waiting_ms([*events, event(30, "pod.bound")]) == [5, 20]


def test_seeds_stand_side_by_side():
    text, status = simulate_seeds(SCENARIOS / "dead-node-loses-no-pod.yaml", 2)
    assert status == 0
    rows = [line.split()[0] for line in text.splitlines()]
    assert rows == ["SEED", "1", "2", "mean", "range"]
