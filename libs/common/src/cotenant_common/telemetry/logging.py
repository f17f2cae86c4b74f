"""Structured logs: an event name and fields, one line each, on standard error."""

import logging
import sys
from typing import Any, Final, Literal

import structlog
import structlog.tracebacks
from structlog.typing import FilteringBoundLogger, Processor

Level = Literal["debug", "info", "warning", "error", "critical"]
Format = Literal["json", "console"]
Logger = FilteringBoundLogger

_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


def configure(level: Level = "info", format: Format = "console") -> None:  # noqa: A002 - the setting's own name
    """Set up logging for this process; the last call wins. Lines of third-party loggers pass from warning up."""
    _configure(level, format)
    logging.basicConfig(level=max(_LEVELS[level], logging.WARNING), stream=sys.stderr, force=True)


def _configure(level: Level, form: Format) -> None:
    structlog.configure(
        processors=_processors(form),
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=_StandardError,
        cache_logger_on_first_use=False,
    )


def _processors(form: Format) -> list[Processor]:
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if form == "console":
        plain = structlog.dev.plain_traceback
        return [*shared, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    # Local variables would carry tokens and whole manifests into the log.
    tracebacks = structlog.processors.ExceptionRenderer(
        structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    )
    return [*shared, tracebacks, structlog.processors.JSONRenderer(default=str)]


class _StandardError(structlog.PrintLogger):
    """Looks up ``sys.stderr`` for each logger, so that a test's or a pager's redirection is honoured."""

    def __init__(self, *_: Any) -> None:
        super().__init__(sys.stderr)


def get_logger(service: str, **fields: Any) -> Logger:
    """A logger that names its service on every line."""
    # Not ``.bind()``: that would freeze the configuration of the moment a module was imported.
    logger: Logger = structlog.get_logger(service=service, **fields)
    return logger


# A library, a test or a simulation that configures nothing still must not print on standard output.
if not structlog.is_configured():
    _configure("warning", "console")
