"""What can be wrong with a scenario, with the place it stands at."""


class ScenarioError(Exception):
    """Bad input: the text names file, line and field."""

    def __init__(self, source: str, line: int | None, field: str, message: str) -> None:
        place = source if line is None else f"{source}:{line}"
        super().__init__(f"{place}: {field}: {message}" if field else f"{place}: {message}")
        self.source = source
        self.line = line
        self.field = field
        self.message = message

    def __reduce__(self) -> tuple[type["ScenarioError"], tuple[str, int | None, str, str]]:
        """It goes from one process to another, and an exception's own way back knows one argument only."""
        return ScenarioError, (self.source, self.line, self.field, self.message)


class SimulationError(RuntimeError):
    """The simulation itself could not go on; never the scenario's fault."""
