"""structlog for the command line: one line an event, on standard error."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor

__all__ = ["configure_logs"]


class _Console:
    """Standard error, as long as there is one: a terminal that was closed must not cost the run that logs to it.

    Nothing is lost by that: a run has every event in its ``events.jsonl`` as well.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            return self._stream.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


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
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Console(sys.stderr))),
        cache_logger_on_first_use=False,
    )


def _drop_traceback(logger: object, method: str, event: EventDict) -> EventDict:
    event.pop("exc_info", None)
    return event
