"""Everything a command can fail with that is not a bug. The exit status is part of the command line's contract."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any


class ExitStatus(IntEnum):
    DONE = 0
    CHECK_FAILED = 1
    DOES_NOT_FIT = 2
    BAD_INPUT = 3
    NO_CONNECTION = 4
    REFUSED = 5
    INTERRUPTED = 130


class CotenantError(Exception):
    """An expectation or a check failed. ``details`` is what the gateway said beside its sentence."""

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.details: Mapping[str, Any] = details or {}

    exit_status = ExitStatus.CHECK_FAILED


class DoesNotFitError(CotenantError):
    """What was asked for finds no place on the machines there are."""

    exit_status = ExitStatus.DOES_NOT_FIT


class BadInputError(CotenantError):
    """The command, a file or an object is wrong; nothing was changed."""

    exit_status = ExitStatus.BAD_INPUT


class NotFoundError(BadInputError):
    """A name that nothing answers to."""


class NoConnectionError(CotenantError):
    """Nobody answers, or not in time."""

    exit_status = ExitStatus.NO_CONNECTION


class RefusedError(CotenantError):
    """A policy, a budget or missing rights forbid it."""

    exit_status = ExitStatus.REFUSED
