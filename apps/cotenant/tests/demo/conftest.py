from pathlib import Path
from types import ModuleType

import pytest

from cotenant.testing import load_program

EXAMPLES = Path(__file__).parents[4] / "examples"


@pytest.fixture(scope="session")
def examples() -> Path:
    return EXAMPLES


@pytest.fixture(scope="session")
def poisson() -> ModuleType:
    return load_program(EXAMPLES / "load" / "poisson.py")


@pytest.fixture(scope="session")
def neighbour() -> ModuleType:
    return load_program(EXAMPLES / "neighbours" / "neighbour.py")


@pytest.fixture(scope="session")
def service() -> ModuleType:
    return load_program(EXAMPLES / "http-service" / "service.py")


@pytest.fixture(scope="session")
def build() -> ModuleType:
    return load_program(Path(__file__).with_name("builders.py"))
