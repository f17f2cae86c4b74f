from pathlib import Path

import pytest

from cotenant_gateway.docs import documents

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.skipif(not DOCS.is_dir(), reason="the gateway is tested outside its repository")
@pytest.mark.parametrize("name", ["api.md", "fields.md", "policy-defaults.md"])
def test_generated_pages_are_fresh(name):
    assert (DOCS / name).read_text() == documents()[name], "run python -m cotenant_gateway.docs docs"
