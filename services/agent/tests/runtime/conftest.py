from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cotenant_agent.runtime.pod_runtime import PodRuntime
from cotenant_agent.runtime.testing import Bench, make_runtime


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    tmp_path.chmod(0o755)
    made = Bench(tmp_path / "state", make_runtime(tmp_path / "state"))
    yield made
    await _clean_up(made.runtime)


async def _clean_up(runtime: PodRuntime) -> None:
    for uid in sorted({found.uid for found in runtime.containers()}):
        await runtime.stop(uid, 0)
    runtime.close()
