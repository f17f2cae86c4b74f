import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[4] / "examples"


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def examples() -> Path:
    return EXAMPLES


@pytest.fixture(scope="session")
def poisson() -> ModuleType:
    return _load(EXAMPLES / "load" / "poisson.py")


@pytest.fixture(scope="session")
def neighbour() -> ModuleType:
    return _load(EXAMPLES / "neighbours" / "neighbour.py")


@pytest.fixture(scope="session")
def service() -> ModuleType:
    return _load(EXAMPLES / "http-service" / "service.py")


@pytest.fixture(scope="session")
def build() -> ModuleType:
    return _load(Path(__file__).with_name("builders.py"))
