"""Leave nothing behind: originals written back, processes ended, groups removed."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from cotenant_agent.cgroup.tree import GroupBusyError
from cotenant_agent.cgroup.writer import KnobWriter, RestoreReport


@dataclass(frozen=True, slots=True)
class TeardownReport:
    killed: int
    removed: bool
    restored: RestoreReport


def remove_everything(
    writer: KnobWriter,
    group: str = "",
    *,
    timeout_s: float = 5.0,
    sleep: Callable[[float], None] = time.sleep,
) -> TeardownReport:
    """Restore every journalled knob, then kill and remove `group` (the whole root by default).

    Blocking, for commands such as `cotenant down`; a running service must have stopped before.
    """
    tree = writer.tree
    restored = writer.restore(int(time.time() * 1_000))
    killed, removed = 0, False
    for _ in range(max(1, int(timeout_s / 0.05))):
        killed += tree.kill(group)
        try:
            tree.remove(group)
        except GroupBusyError:
            # An exiting process holds its group for a moment after SIGKILL.
            sleep(0.05)
        else:
            removed = True
            break
    writer.forget(group)
    return TeardownReport(killed, removed, restored)
