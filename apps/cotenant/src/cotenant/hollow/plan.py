"""What a fleet of hollow nodes looks like."""

from dataclasses import dataclass

from cotenant_common.model import ids


class FleetError(ValueError):
    """The fleet that was asked for cannot be made."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """``rate`` is how many nodes register per second: a thousand machines do not boot in one instant either."""

    nodes: int
    cpu_milli: int = 32_000
    memory_bytes: int = 128 << 30
    pods_per_node: int = 110
    rate: float = 100.0
    prefix: str = "hollow"
    usage_interval_ms: int = 1_000
    heartbeat_interval_ms: int = 3_000
    snapshot_interval_ms: int = 60_000
    zones: int = 3

    def __post_init__(self) -> None:
        if not ids.is_dns_subdomain(self.name(self.nodes - 1)):
            raise FleetError(f"prefix {self.prefix!r}: expected lower-case letters, digits and dashes")

    def name(self, index: int) -> str:
        return f"{self.prefix}-{index:05}"

    def names(self) -> list[str]:
        return [self.name(index) for index in range(self.nodes)]
