"""What happened to each pod lately, in a bounded memory: the newest ten thousand pods, twenty lines each."""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Final

_PODS: Final = 10_000
_LINES: Final = 20


@dataclass(slots=True)
class Story:
    lines: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_LINES))
    scores: dict[str, int] = field(default_factory=dict)
    feasible: int | None = None


class Stories:
    def __init__(self) -> None:
        self._stories: OrderedDict[str, Story] = OrderedDict()

    def of(self, uid: str) -> Story:
        """Made when it is new; the story untouched for longest makes room."""
        story = self._stories.get(uid)
        if story is None:
            story = self._stories[uid] = Story()
            if len(self._stories) > _PODS:
                self._stories.popitem(last=False)
        self._stories.move_to_end(uid)
        return story

    def tell(self, uid: str, at_ms: int, what: str, **details: Any) -> None:
        """Repetition is a count, not a line: a pod refused a thousand times still has a readable story."""
        lines = self.of(uid).lines
        line = {"what": what, **details}
        if lines and {key: value for key, value in lines[-1].items() if key not in ("at_ms", "times")} == line:
            lines[-1]["times"] = lines[-1].get("times", 1) + 1
        else:
            lines.append({"at_ms": at_ms, **line})
