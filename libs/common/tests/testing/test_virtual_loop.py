import asyncio
import time

import pytest

from cotenant_common.runtime.clock import LoopClock
from cotenant_common.testing import virtual_loop
from cotenant_common.testing.virtual_loop import DeadlockError, LivelockError, in_virtual_time, run


def test_a_day_passes_in_a_moment() -> None:
    async def main() -> tuple[float, int]:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time(), LoopClock(1000).now_ms()

    began = time.monotonic()
    assert run(main()) == (86_400.0, 86_401_000)
    assert time.monotonic() - began < 5


def test_times_stay_exact_over_many_timers() -> None:
    async def main() -> list[int]:
        seen = []
        for _ in range(1000):
            await asyncio.sleep(0.1)
            seen.append(LoopClock().now_ms())
        return seen

    assert run(main()) == list(range(100, 100_001, 100))


def test_timers_fire_in_the_order_of_their_times() -> None:
    async def main() -> list[int]:
        order: list[int] = []

        async def after(seconds: float, name: int) -> None:
            await asyncio.sleep(seconds)
            order.append(name)

        await asyncio.gather(after(3, 3), after(1, 1), after(2, 2))
        return order

    assert run(main()) == [1, 2, 3]


def test_a_timeout_fires_without_waiting_for_it() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()

    run(main())


def test_waiting_for_nothing_is_reported_and_names_who_waits() -> None:
    async def main() -> None:
        asyncio.current_task().set_name("the scheduler")  # type: ignore[union-attr]
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match="the scheduler"):
        run(main())


def test_polling_without_a_pause_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_loop, "MAX_TURNS_AT_ONE_INSTANT", 1000)

    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(LivelockError):
        run(main())


@pytest.fixture
def number() -> int:
    return 7


@in_virtual_time
async def test_fixtures_reach_a_test_in_virtual_time(number: int) -> None:
    await asyncio.sleep(1000)
    assert number == 7


def test_timers_of_one_instant_fire_in_the_order_in_which_they_were_set() -> None:
    async def main() -> list[int]:
        order: list[int] = []
        loop = asyncio.get_running_loop()
        for name in range(50):
            loop.call_at(10.0, order.append, name)
        await asyncio.sleep(11)
        return order

    assert run(main()) == list(range(50))


def test_cancelled_timeouts_do_not_pile_up_until_they_are_due() -> None:
    async def main() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_loop.VirtualLoop)
        most = 0
        for _ in range(20_000):
            async with asyncio.timeout(86_400):
                await asyncio.sleep(0.001)
            most = max(most, len(loop._timers))
        return most, loop.time()

    most, now = run(main())
    assert most < 5_000
    assert now == pytest.approx(20.0)
