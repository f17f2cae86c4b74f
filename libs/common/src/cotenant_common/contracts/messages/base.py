"""What every message shares."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """Frozen, and tolerant of fields that a newer publisher adds: an old reader keeps working."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="null")

    version: ClassVar[int] = 1


class PodRef(Message):
    """One incarnation of a pod; the uid is the identity, the name is for people."""

    uid: str
    namespace: str
    name: str
    node: str | None = None
