"""What a service makes of the variables that a description of its container sets."""

import os
from collections.abc import Callable, Mapping

import pytest

from cotenant.stack.services import settings_class
from cotenant_common.runtime.settings import ServiceSettings, load_settings


@pytest.fixture
def understood(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Mapping[str, str]], ServiceSettings]:
    """The settings of a service that starts with these variables and no others."""

    def read(service: str, given: Mapping[str, str]) -> ServiceSettings:
        for variable in [variable for variable in os.environ if variable.startswith("COTENANT_")]:
            monkeypatch.delenv(variable)
        for variable, value in given.items():
            monkeypatch.setenv(variable, value)
        kind = settings_class(service)
        # A variable that no setting reads would be a typing error that nobody hears of.
        fields = {f"COTENANT_{name.upper()}" for name in kind.model_fields}
        fields |= {f"COTENANT_{service.upper()}_{name.upper()}" for name in kind.model_fields}
        assert set(given) <= fields
        return load_settings(kind)

    return read
