"""A home for a stack, taken down again whatever the test did to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.stack import control
from cotenant.stack.home import StackHome
from cotenant.testing import quiet


@pytest.fixture
def home(tmp_path: Path) -> Iterator[StackHome]:
    found = StackHome(tmp_path / "home")
    yield found
    control.take_down(found, keep_state=False, grace_s=1.0, say=quiet)
