"""What the tasks of a leading scheduler share."""

import asyncio
from dataclasses import dataclass, field

from cotenant_common.bus.protocol import Bucket
from cotenant_common.runtime.events import Announcer
from cotenant_common.runtime.lease import Lease
from cotenant_common.runtime.service import ServiceContext
from cotenant_scheduler.adapters.records import Records
from cotenant_scheduler.adapters.state import ClusterState
from cotenant_scheduler.adapters.stories import Stories
from cotenant_scheduler.config import SchedulerSettings


@dataclass(slots=True)
class Leader:
    """``announcer`` tells of bindings, ``reasons`` of records."""

    context: ServiceContext
    settings: SchedulerSettings
    state: ClusterState
    stories: Stories
    bindings: Bucket
    lease: Lease
    announcer: Announcer
    reasons: Announcer
    records: Records
    work: asyncio.Event
    """Set when something happened that may be worth another look."""
    deposed: asyncio.Event = field(default_factory=asyncio.Event)

    def now_ms(self) -> int:
        return self.context.clock.now_ms()
