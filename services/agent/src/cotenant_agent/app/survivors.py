"""Pods that outlived the store they came from: told of until they are bound again, or another takes their name."""

from dataclasses import dataclass, field

from cotenant_agent.adapters.ports import SpecStore
from cotenant_common.contracts.messages.state import PodStatusRecord, SpecRecord
from cotenant_common.model.ids import spec_key
from cotenant_common.model.reasons import ReasonCode


@dataclass(slots=True)
class Survivors:
    """``store`` is None where there is no disk: then nothing outlives the agent."""

    node: str
    store: SpecStore | None
    _uids: dict[str, str] = field(default_factory=dict)
    """By key of the spec."""

    def keep(self, record: SpecRecord) -> None:
        if self.store is not None:
            self.store.keep(record)

    def forget(self, uid: str) -> None:
        self.bound(uid)
        if self.store is not None:
            self.store.forget(uid)

    def found(self, uid: str) -> PodStatusRecord | None:
        """What to tell of a pod that runs here and that this store never heard of; None when nobody knows its name."""
        record = self.store.read(uid) if self.store is not None else None
        if record is None:
            return None
        self._uids[key_of(record)] = uid
        return PodStatusRecord(
            uid=uid,
            namespace=record.namespace or "",
            name=record.name,
            node=self.node,
            phase="Running",
            ready=True,
            reason=ReasonCode.ADOPTED,
            message="it runs here and outlived the store that it came from",
            survivor=record,
        )

    def bound(self, uid: str) -> None:
        """It is wanted again, or gone."""
        self._uids = {key: known for key, known in self._uids.items() if known != uid}

    def superseded(self, key: str, record: SpecRecord | None) -> str | None:
        """The survivor whose name another pod was given meanwhile: of the two, the one that somebody wants stays."""
        uid = self._uids.get(key)
        return uid if uid is not None and record is not None and record.uid != uid else None


def key_of(record: SpecRecord) -> str:
    return spec_key("Pod", record.namespace, record.name)
