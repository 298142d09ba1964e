"""Looking at a run from another process: what is in flight, and what happened since."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .layout import RunDir
from .live import duration
from .lock import holder
from .progress import read_status
from .reader import StoreReader

__all__ = ["WatchUpdate", "watch_run"]


@dataclass(frozen=True, slots=True)
class WatchUpdate:
    """One look at a run: ``status`` is the content of ``status.json``, ``events`` those since the last look."""

    running: bool
    status: dict[str, Any] | None
    events: list[dict[str, Any]]

    def __str__(self) -> str:
        lines = [_event_line(event) for event in self.events if event["event"] not in _MANY]
        if self.status is not None:
            lines.append(_status_line(self.status, self.running))
            lines += [_play_line(play) for play in self.status["in_flight"]]
        return "\n".join(lines)


_MANY = {"play_started", "play_finished", "stage_changed", "program_admitted"}
"""Events that the status line sums up."""


def watch_run(
    run_dir: Path, *, follow: bool = True, every_s: float = 1.0, sleep: Callable[[float], None] = time.sleep
) -> Iterator[WatchUpdate]:
    """Look at the run in ``run_dir`` now and, with ``follow``, every ``every_s`` seconds until no process runs it.

    The first look has no events from before it. Only looks that differ from the one before are given.
    Raises :class:`~spade_agentic.errors.RunDirError` where there is no run.
    """
    StoreReader(run_dir).close()
    run = RunDir(Path(run_dir))
    tail = _Tail(run.events)
    last: dict[str, Any] | None = None
    first = True
    while True:
        running = holder(run.lock) is not None
        status, events = read_status(run.status), tail.read()
        if first or events or status != last or not running:
            yield WatchUpdate(running, status, events)
        if not (follow and running):
            return
        first, last = False, status
        sleep(every_s)


class _Tail:
    """Whole lines that were appended to a file since the last look; a line still being written waits for the next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = path.stat().st_size if path.exists() else 0

    def read(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            return self._lines(file)

    def _lines(self, file: IO[bytes]) -> list[dict[str, Any]]:
        file.seek(self._position)
        data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        events = []
        for line in whole.splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                continue  # the line that a kill cut off
        return events


def _event_line(event: dict[str, Any]) -> str:
    known = ("event", "run_id", "id", "level", "seq", "t", "elapsed_s")
    shown = " ".join(f"{k}={v}" for k, v in list(event.items()) if k not in known and "/" not in k)
    return f"{event.get('t', '')[11:19]} {event['event']} {event.get('id', '')} {shown}".rstrip()


def _status_line(status: dict[str, Any], running: bool) -> str:
    success = ", ".join(f"{arm} {value:.2f}" for arm, value in status["success"].items()) or "-"
    refused = sum(status["refused"].values())
    left = "" if status["left_s"] is None else f", {duration(status['left_s'])} left"
    return (
        f"step {status['step']}/{status['steps']} {status['stage'] if running else 'not running'}: "
        f"{status['plays_in_flight']} plays in flight, {status['plays_done']} done, success {success}, "
        f"admitted {status['admitted']}, refused {refused}{left}"
    )


def _play_line(play: dict[str, Any]) -> str:
    return (
        f"  {play['play_id']} ({play['env_id']}, {play['arm']}): turn {play['turn']}, {duration(play['elapsed_s'])}, "
        f"last progress {duration(play['since_progress_s'])} ago"
    )
