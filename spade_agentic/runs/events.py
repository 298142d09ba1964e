"""What happened, one line of JSON an event, in ``events.jsonl``.

Every event has a name from :data:`EVENTS` (or, for a plugin's own, the name it logs), the ``run_id``, the ``id`` of the thing
it is about (a play, a draft, an environment, a step, the run: the same id in the store), a running number ``seq``, wall time
``t`` for people and ``elapsed_s`` by a clock that never jumps. Warnings and errors also go to the console. Whatever any part or
plugin logs through :mod:`structlog` while the log is open is written here too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import structlog

__all__ = ["EVENTS", "EventLog"]

EVENTS: dict[str, str] = {
    "run_started": "The run began, or continued after `resumed_from`.",
    "run_ended": "The run ended with `status`.",
    "stop_requested": "Somebody pressed Ctrl-C: the run ends when `step` is committed.",
    "view_failed": "Nothing can be shown any more, since the terminal is gone; the run goes on.",
    "checkpoint_recovered": "A checkpoint without a commit was removed when the run was opened.",
    "stage_changed": "The run went on to `stage` of step `step`.",
    "round_opened": "The designer begins a new round.",
    "program_admitted": "A draft passed the gates; `env_id` is its environment.",
    "program_refused": "A draft was refused by `gate` for `code`.",
    "play_started": "A play was admitted and runs.",
    "play_finished": "A play ended; `stop` says why.",
    "batch_ready": "The batch of a step is complete.",
    "step_committed": "A step is on disk.",
    "checkpoints_pruned": "Old checkpoints were removed.",
    "evaluation_finished": "An evaluator answered.",
    "tracker_failed": "A tracker raised; the metrics are in the store all the same.",
    "transcripts_failed": "Transcripts could not be written; the plays are in the store all the same.",
    "report_failed": "The page of the run could not be written; `runs report --html` makes it again from the store.",
    "audit_breach": "A check of the training signal failed; `check` names it, `required` says what should hold.",
}
"""The names that this package emits, and what each means."""

_LOUD = ("warning", "error", "critical")
_RECORDED = "_recorded"


class EventLog:
    """The event log of one run; appends to what an earlier process of the run wrote.

    ``clock`` measures ``elapsed_s`` and must never jump. Close it to stop capturing what others log.
    """

    def __init__(self, path: Path, run_id: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._run_id = run_id
        self._clock, self._started = clock, clock()
        self._seq = _mend(path)
        self._file: IO[str] = path.open("a", encoding="utf-8", errors="backslashreplace")
        self._logger = structlog.wrap_logger(
            structlog.WriteLogger(self._file),
            processors=[
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
            ],
            wrapper_class=structlog.BoundLogger,
        )

    def emit(self, event: str, *, id: str, level: str = "info", **fields: Any) -> None:
        """Write one event about the thing ``id``; a warning or an error is also shown on the console."""
        assert event in EVENTS, f"{event} is not an event: add it to EVENTS with its meaning"
        self._write(event, level, {"id": id, **fields})
        if level in _LOUD:
            getattr(structlog.get_logger("spade_agentic"), level)(event, id=id, **fields, **{_RECORDED: True})

    def flush(self) -> None:
        """Hand what was written to the system, so that a kill of this process loses none of it."""
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def capture(self) -> Iterator[None]:
        """While inside, what anyone logs through structlog's default configuration is written to this log as well."""
        before = structlog.get_config()["processors"]
        structlog.configure(processors=[self._tee, *before])
        try:
            yield
        finally:
            structlog.configure(processors=[p for p in structlog.get_config()["processors"] if p != self._tee])

    def _tee(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if not event.pop(_RECORDED, False) and not self._file.closed:
            fields = {k: v for k, v in event.items() if k != "event" and not k.startswith("_")}
            self._write(str(event.get("event", "")), method, {"id": str(fields.pop("id", "")), **fields})
        return event

    def _write(self, event: str, level: str, fields: dict[str, Any]) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        elapsed_s = round(self._clock() - self._started, 3)
        known = {"run_id": self._run_id, "level": level, "seq": self._seq, "t": stamp, "elapsed_s": elapsed_s}
        self._logger.info(event, **{**fields, **known})
        self._seq += 1


def _mend(path: Path) -> int:
    """End a line that a kill cut off, so that the next event starts on its own. Returns the number of the next event."""
    if not path.exists():
        return 0
    with path.open("rb+") as file:
        lines = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
                lines += 1
    return lines
