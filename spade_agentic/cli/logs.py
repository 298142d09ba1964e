"""structlog for the command line: one line an event, on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor

__all__ = ["configure_logs"]


def configure_logs(*, debug: bool) -> None:
    """Events as ``time [level] event key=value``; tracebacks only with ``debug``."""
    import structlog

    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
    ]
    if not debug:
        processors.append(_drop_traceback)
    processors.append(
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=0
        )
    )
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger("debug" if debug else "info"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _drop_traceback(logger: object, method: str, event: EventDict) -> EventDict:
    event.pop("exc_info", None)
    return event
