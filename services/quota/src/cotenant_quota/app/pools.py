"""Has the gateway write the root quota of every ElasticQuotaProfile, and keeps it at what its nodes have."""

import asyncio
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

from cotenant_common.bus.protocol import BusClosedError, BusError
from cotenant_common.contracts import codec
from cotenant_common.contracts.messages.commands import ApplyReply, ApplyRequest
from cotenant_common.contracts.messages.state import SpecRecord
from cotenant_common.contracts.subjects import OBJECT_APPLY
from cotenant_common.model.ids import object_key
from cotenant_common.model.quota.profile import parse_profile
from cotenant_common.runtime import requests
from cotenant_common.runtime.service import ServiceContext
from cotenant_quota.adapters.capacity import pool_nodes
from cotenant_quota.app.world import World
from cotenant_quota.config import QuotaSettings
from cotenant_quota.core.profile import pool_of, root_quota

_SERVICE: Final = "quota"


class Pools:
    def __init__(self, context: ServiceContext, settings: QuotaSettings, world: World) -> None:
        self._context = context
        self._settings = settings
        self._world = world
        self._refused: dict[str, dict[str, Any]] = {}
        """What the gateway would not write, by profile: asking again for the same changes nothing."""

    async def run(self, leads: Callable[[], bool]) -> None:
        while True:
            await asyncio.sleep(self._settings.profile_interval_s)
            self._context.health.beat("pools", within_s=60 + 3 * self._settings.profile_interval_s)
            if leads():
                for key in sorted(self._world.profiles):
                    await self._update(key, self._world.profiles[key])

    async def _update(self, key: str, record: SpecRecord) -> None:
        profile, problems = parse_profile(record.manifest)
        if profile is None:
            self._context.log.error("profile_unusable", profile=key, problems=[str(one) for one in problems])
            return
        world = self._world
        nodes = pool_nodes(world.nodes.items, world.overcommit.items, world.node_specs)
        existing = world.manifest(profile.namespace, profile.quota_name)
        wanted = root_quota(profile, pool_of(profile, nodes), existing)
        if existing is not None and _same(existing, wanted):
            self._refused.pop(key, None)
        elif self._refused.get(key) != wanted:
            await self._apply(key, record, wanted)

    async def _apply(self, key: str, record: SpecRecord, manifest: dict[str, Any]) -> None:
        owner = object_key(record.kind, record.namespace, record.name)
        digest = blake2b(codec.pack(manifest), digest_size=8).hexdigest()
        request = ApplyRequest(
            id=f"{_SERVICE}/{owner}/{record.generation}/{digest}",
            manifests=[manifest],
            requested_by=f"{_SERVICE} for {owner}",
        )
        try:
            reply = await requests.call(self._context.bus, OBJECT_APPLY, request, ApplyReply, retries=1)
        except BusClosedError:
            raise
        except BusError as error:
            self._context.log.warning("profile_waits", profile=key, error=str(error))
            return
        if reply.ok:
            self._refused.pop(key, None)
            return
        self._refused[key] = manifest
        errors = [error for result in reply.results for error in result.errors]
        self._context.log.error("profile_refused", profile=key, errors=errors)


def _same(stored: dict[str, Any], wanted: dict[str, Any]) -> bool:
    def part(manifest: dict[str, Any]) -> tuple[Any, ...]:
        metadata = manifest.get("metadata") or {}
        return metadata.get("labels"), metadata.get("annotations"), manifest.get("spec")

    return part(stored) == part(wanted)
