import re
from pathlib import Path

from cotenant_simulator import parse, run
from cotenant_simulator.documents import with_schema

PAGE = Path(__file__).parents[3] / "docs" / "scenarios.md"


def test_the_schema_in_the_docs_is_that_of_the_code():
    page = PAGE.read_text()
    assert with_schema(page) == page, "write it again: with_schema(page)"


def test_the_first_example_of_the_docs_works():
    example = next(
        block for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL) if "kind: Scenario" in block
    )
    assert run(parse(example)).ok
