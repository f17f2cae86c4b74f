"""Since when quotas have been over their share without a break."""

from collections.abc import Iterable, Mapping


class OverTimers:
    """By tree and quota. A quota that is within its share for a moment starts anew."""

    def __init__(self) -> None:
        self._since: dict[str, dict[str, int]] = {}

    def restore(self, tree: str, since: Mapping[str, int]) -> None:
        """What whoever led before had noted."""
        self._since[tree] = dict(since)

    def note(self, tree: str, over: Iterable[str], now_ms: int) -> Mapping[str, int]:
        before = self._since.get(tree, {})
        self._since[tree] = {name: before.get(name, now_ms) for name in over}
        return self._since[tree]

    def forget(self, tree: str) -> None:
        self._since.pop(tree, None)

    def due(self, tree: str, now_ms: int, delay_ms: int) -> list[str]:
        return sorted(name for name, at_ms in self._since.get(tree, {}).items() if now_ms - at_ms >= delay_ms)
