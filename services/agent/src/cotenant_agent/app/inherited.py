"""What an earlier agent held best-effort work to, and who may loosen it."""

from dataclasses import dataclass
from typing import Final

from cotenant_agent.cgroup.files import UNLIMITED, Knob
from cotenant_agent.cgroup.tree import CgroupTree


@dataclass(frozen=True, slots=True)
class Inherited:
    """What an earlier agent held BE to; None where nothing.

    It knew the policy and every pod. Until we do, its limits may be tightened and never loosened.
    """

    cpu_milli: int | None = None
    cpus: frozenset[int] | None = None
    memory_bytes: int | None = None


NOTHING: Final = Inherited()


def read_inherited(tree: CgroupTree, group: str, cpu_milli: int | None) -> Inherited:
    memory = tree.read(group, Knob.MEMORY_MAX)
    cpus = tree.effective_cpus(group)
    return Inherited(
        cpu_milli=cpu_milli,
        cpus=None if cpus is None else frozenset(cpus),
        memory_bytes=None if memory is None or memory == UNLIMITED else int(memory),
    )
