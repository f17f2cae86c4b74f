"""Messages that came around the server's permissions.

nats-server checks the subject that a user publishes to, but not the reply subject, nor where a consumer delivers: it
sends the answer there itself. Who may read one key of its own could so put that key's bytes under any subject. What
takes such a way carries marks of the server that its user cannot take off, and no message that was published does.
"""

from collections.abc import Mapping
from typing import Final

from cotenant_common.contracts.buckets import BUCKETS
from cotenant_common.contracts.permissions import INBOX_PREFIX

_READ_FROM: Final = "Nats-Subject"
_STREAM: Final = "Nats-Stream"
_DELIVERED: Final = "$JS."


def was_published(subject: str, headers: Mapping[str, str], reply_to: str) -> bool:
    """False for the answer to a read and for a consumer's delivery; a bucket's own republish is as published."""
    if reply_to.startswith(_DELIVERED):
        return False
    return _READ_FROM not in headers or _is_republished(subject, headers)


def was_asked(subject: str, headers: Mapping[str, str], reply_to: str) -> bool:
    """A request by somebody who waits for its answer."""
    return reply_to.startswith(f"{INBOX_PREFIX}.") and was_published(subject, headers, reply_to)


def was_stored_by_a_writer(headers: Mapping[str, str]) -> bool:
    """Of a message as it stands in a bucket."""
    return _READ_FROM not in headers


def _is_republished(subject: str, headers: Mapping[str, str]) -> bool:
    return any(
        spec.republish is not None
        and headers.get(_STREAM) == spec.stream
        and subject.startswith(spec.republish[1].partition("{")[0])
        for spec in BUCKETS
    )
