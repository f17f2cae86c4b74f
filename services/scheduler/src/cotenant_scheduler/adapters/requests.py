"""Specs → pod requests. Pods of one template are read once: reading costs ten times what deciding does."""

import marshal
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from cotenant_common.contracts.messages.state import SpecRecord
from cotenant_scheduler.adapters import facts
from cotenant_scheduler.core.estimate import LoadPolicy
from cotenant_scheduler.core.request import PodRequest

_TEMPLATES_KEPT: Final = 1_024
_WITHOUT_REFERENCES: Final = 2
"""Newer formats of marshal write equal values differently when parts of them are one object."""


class RequestReader:
    """A request depends on spec, labels, annotations and owner; name, uid and times are only copied."""

    def __init__(self, policy: LoadPolicy, extras: Collection[str] = ()) -> None:
        self._policy = policy
        self._extras = extras
        self._read: OrderedDict[bytes, PodRequest] = OrderedDict()

    def read(self, record: SpecRecord, revision: int) -> PodRequest | None:
        """None for a manifest that cannot be read."""
        key = _template(record)
        known = self._read.get(key) if key is not None else None
        if known is not None:
            return replace(
                known, uid=record.uid, name=record.name, created_ms=record.created_ms, spec_revision=revision
            )
        pod = facts.pod_request(record, revision, self._policy, self._extras)
        if pod is not None and key is not None:
            self._read[key] = pod
            if len(self._read) > _TEMPLATES_KEPT:
                self._read.popitem(last=False)
        return pod


def _template(record: SpecRecord) -> bytes | None:
    """None where the manifest holds something that is not plain data; it is then read on its own."""
    try:
        metadata = record.manifest.get("metadata") or {}
        parts = [metadata.get(name) for name in ("namespace", "labels", "annotations", "ownerReferences")]
        return marshal.dumps((record.namespace, *parts, record.manifest.get("spec")), _WITHOUT_REFERENCES)
    except (ValueError, AttributeError):
        return None
