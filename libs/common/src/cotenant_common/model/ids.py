"""Names, keys and identities."""

import re
import uuid
from functools import lru_cache
from typing import Final, NewType

NodeName = NewType("NodeName", str)
PodUid = NewType("PodUid", str)

CLUSTER_SCOPE: Final = "-"
# nats-server closes a client for good over a key of 4,040 characters; Kubernetes names stop at 253 anyway.
MAX_TOKEN: Final = 512
_NAMESPACE: Final = uuid.UUID("6f1d1a5e-7f0c-5c0b-9c36-9b5a3f0c7a11")
_TOKEN: Final = re.compile(r"^[-/=A-Za-z0-9_]+\Z", re.ASCII)
_DNS_SUBDOMAIN: Final = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z", re.ASCII)


class InvalidNameError(ValueError):
    """A name that cannot be a key or a subject token."""


@lru_cache(maxsize=65_536)
def encode_token(name: str) -> str:
    """One subject token for a Kubernetes name: ``.`` becomes ``_``, which names never hold. Raise InvalidNameError."""
    token = name.replace(".", "_")
    if "_" in name or len(token) > MAX_TOKEN or not _TOKEN.match(token):
        raise InvalidNameError(f"expected a Kubernetes name (letters, digits, '-', '.'), got {name[:80]!r}")
    return token


def decode_token(token: str) -> str:
    """The inverse of ``encode_token``."""
    return token.replace("_", ".")


def is_dns_subdomain(name: str) -> bool:
    """RFC 1123 subdomain of at most 253 characters, as Kubernetes requires of most names."""
    return len(name) <= 253 and _DNS_SUBDOMAIN.match(name) is not None


def spec_key(kind: str, namespace: str | None, name: str) -> str:
    """``<Kind>.<ns or ->.<name>`` in the bucket ``specs``."""
    return f"{kind}.{encode_token(namespace) if namespace else CLUSTER_SCOPE}.{encode_token(name)}"


def pod_uid(namespace: str, name: str, incarnation: int, seed: str) -> PodUid:
    """UUIDv5 of namespace, name, incarnation and seed: a replay of the same history gives the same identities."""
    return PodUid(str(uuid.uuid5(_NAMESPACE, f"{namespace}/{name}/{incarnation}/{seed}")))


def object_key(kind: str, namespace: str | None, name: str) -> str:
    """``Kind/namespace/name``: how events name their object."""
    return f"{kind}/{namespace or CLUSTER_SCOPE}/{name}"
