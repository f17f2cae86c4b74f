"""Print the slices of the two nodes as variables for docker compose: half of this machine's cores and a quarter of its
memory each. `make compose-up` keeps them in .env.
"""

import os
import sys
from pathlib import Path


def cpu_list(cpus: list[int]) -> str:
    """Kernel list format: 0-3,8."""
    parts: list[list[int]] = []
    for cpu in cpus:
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def slices(cpus: list[int], memory_bytes: int) -> dict[str, str]:
    """Raise ValueError when the machine is too small for two nodes."""
    if len(cpus) < 2:
        raise ValueError(f"two nodes need two cores, this machine lets us use {len(cpus)}")
    half = len(cpus) // 2
    memory = str(memory_bytes // 4)
    return {
        "COTENANT_NODE_A_CPUS": cpu_list(cpus[:half]),
        "COTENANT_NODE_A_MEMORY_BYTES": memory,
        "COTENANT_NODE_B_CPUS": cpu_list(cpus[half : 2 * half]),
        "COTENANT_NODE_B_MEMORY_BYTES": memory,
    }


def of_this_machine() -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return slices(sorted(os.sched_getaffinity(0)), memory)


def keep(file: Path) -> bool:
    """Add the slices to compose's .env unless they are there: every later `docker compose` must mean the same nodes."""
    text = file.read_text() if file.exists() else ""
    missing = {name: value for name, value in of_this_machine().items() if f"{name}=" not in text}
    if missing:
        lines = "".join(f"{name}={value}\n" for name, value in missing.items())
        file.write_text(text + ("\n" if text and not text.endswith("\n") else "") + lines)
    return bool(missing)


if __name__ == "__main__":
    try:
        print("\n".join(f"{name}={value}" for name, value in of_this_machine().items()))
    except ValueError as error:
        sys.exit(f"slices: {error}")
