"""What a request can be answered with instead of a result: one clear sentence, and a reason for machines."""

from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """``status`` is the HTTP status; ``field`` the place in the input, when there is one."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        field: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.field = field
        self.details = dict(details or {})

    def body(self) -> dict[str, Any]:
        place = {"field": self.field} if self.field else {}
        return {"error": {"reason": self.reason, "message": self.message, **place, **self.details}}


def not_found(what: str) -> ApiError:
    return ApiError(404, "NotFound", f"{what} does not exist")


def bad_request(message: str, place: str | None = None) -> ApiError:
    return ApiError(400, "Invalid", message, place)


def unavailable(message: str) -> ApiError:
    return ApiError(503, "Unavailable", message)
