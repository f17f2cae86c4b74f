"""Freeze and observe: kept in ConfigMaps, so that they outlive the gateway and every service can see them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotenant_common.runtime.service import ServiceContext
from cotenant_gateway.app.leadership import Leadership
from cotenant_gateway.app.operations import Operations, Outcome
from cotenant_gateway.app.world import World
from cotenant_gateway.core import names
from cotenant_gateway.core.errors import bad_request
from cotenant_gateway.core.observe import Observing
from cotenant_gateway.core.plan import new_uid
from cotenant_gateway.core.records import Change, Put, Remove, Spec

FROZEN: Final = "cluster.frozen"
UNFROZEN: Final = "cluster.unfrozen"
OBSERVED: Final = "cluster.observed"
MAX_TEXT: Final = 1_024


@dataclass(frozen=True, slots=True)
class Brakes:
    context: ServiceContext
    world: World
    lead: Leadership
    operations: Operations

    async def freeze(self, reason: str, by: str = "user", *, dry_run: bool = False) -> Outcome:
        """No removal and no tightening until ``unfreeze``. A second freeze replaces the reason of the first."""
        _check_text(reason, "reason")
        _check_text(by, "by")

        def decide() -> Outcome:
            data = {"reason": reason, "by": by, "since_ms": str(self.context.clock.now_ms())}
            return Outcome([self._config(names.FREEZE, data, FROZEN)], "frozen", reason)

        return await self.lead.carry_out(decide, dry_run=dry_run)

    async def unfreeze(self, by: str = "user", *, dry_run: bool = False) -> Outcome:
        _check_text(by, "by")

        def decide() -> Outcome:
            found = self._found(names.FREEZE)
            if not found:
                return Outcome([], "unchanged", "nothing is frozen")
            message = f"by {by}; was frozen: {self.world.frozen()}"
            return Outcome([Remove(spec, (UNFROZEN,), None, message) for spec in found], "unfrozen")

        return await self.lead.carry_out(decide, dry_run=dry_run)

    async def observe(self, scope: Observing, *, stop: bool = False, dry_run: bool = False) -> Outcome:
        """Add to what is only looked at, or take away from it."""

        def decide() -> Outcome:
            before = self.world.observing()
            after = before.less(scope) if stop else before.more(scope)
            word = "acts again" if stop else "only observed"
            if after == before:
                return Outcome([], "unchanged", f"{_shown(scope)}: {word} already")
            found = self._found(names.OBSERVE)
            if not after:
                return Outcome([Remove(spec, (OBSERVED,), None, "nothing is only observed") for spec in found], word)
            return Outcome([self._config(names.OBSERVE, after.to_data(), OBSERVED)], word, _shown(after))

        return await self.lead.carry_out(decide, dry_run=dry_run)

    def _found(self, name: str) -> Sequence[Spec]:
        specs = (self.world.find_object("ConfigMap", namespace, name) for namespace in names.SYSTEM_NAMESPACES)
        return [spec for spec in specs if spec is not None]

    def _config(self, name: str, data: Mapping[str, str], event: str) -> Change:
        """Where there is one already, it is changed in place: two of them would contradict each other."""
        old = next(iter(self._found(name)), None)
        namespace = old.namespace if old is not None and old.namespace else names.SYSTEM_NAMESPACES[0]
        manifest: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace},
            "data": dict(data),
        }
        if old is not None:
            return Put(old.changed(manifest, "object.applied", event), old)
        uid = new_uid("ConfigMap", namespace, name, 0, self.operations.seed())
        now_ms = self.context.clock.now_ms()
        return Put(Spec("ConfigMap", namespace, name, uid, now_ms, manifest, tells=("object.applied", event)))


def _shown(scope: Observing) -> str:
    parts = ["everything"] if scope.everything else []
    parts += [f"node {name}" for name in scope.nodes] + [f"namespace {name}" for name in scope.namespaces]
    return ", ".join(parts) or "nothing"


def _check_text(text: str, field: str) -> None:
    """Raise ApiError for what no ConfigMap may hold."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT or not text.isprintable():
        raise bad_request(f"expected a printable sentence of at most {MAX_TEXT} bytes", field)
