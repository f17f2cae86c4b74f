"""The part of ``docs/scenarios.md`` that is generated: the schema of ``config`` with its defaults.

``python -m cotenant_simulator.documents docs/scenarios.md`` writes it.
"""

import sys
from pathlib import Path
from typing import Final

from cotenant_simulator.config import schema_text

BEGIN: Final = "<!-- generated: config schema -->\n"
END: Final = "<!-- end generated -->"


def with_schema(page: str) -> str:
    """The page with its generated part as it should be. Raise ValueError when the marks are missing."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"expected the marks {BEGIN.strip()} and {END}")
    return f"{head}{BEGIN}\n{schema_text()}\n{END}{tail}"


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(with_schema(document.read_text()))
