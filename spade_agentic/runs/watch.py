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
from .visible import visible

__all__ = ["WatchUpdate", "watch_run", "watch_table"]


@dataclass(frozen=True, slots=True)
class WatchUpdate:
    """One look at a run: ``status`` is the content of ``status.json``, ``events`` those since the last look.

    ``age_s`` is how long ago a running run wrote its status; it is added to what the status says about time, so that a play
    that hangs is seen to hang. 0 for a run that does not run.
    """

    running: bool
    status: dict[str, Any] | None
    events: list[dict[str, Any]]
    age_s: float = 0.0

    def __str__(self) -> str:
        return "\n".join([*self.event_lines(), *self.lines()])

    def event_lines(self) -> list[str]:
        """What happened since the last look, apart from what the status sums up."""
        return [_event_line(event) for event in self.events if event["event"] not in _MANY]

    def lines(self, most: int | None = None) -> list[str]:
        """What the run does now, then a line for each play in flight, at most ``most``, longest without progress first."""
        if self.status is None:
            return []
        rows = watch_table(self)
        shown = rows if most is None else rows[: max(0, most)]
        left_out = self.status["plays_in_flight"] - len(shown) if self.running else 0
        more = [f"  ... and {left_out} more, with later progress"] if left_out > 0 else []
        return [_status_line(self), *_aligned(shown), *more]


_MANY = {"play_started", "play_finished", "stage_changed", "program_admitted"}
"""Events that the status line sums up."""

SILENT_S = 30.0
"""A run that has written no status for so long is said to be silent: a long update, or something that hangs."""
HEADS = ("play", "environment", "arm", "stage", "turns", "elapsed", "last progress")


def watch_table(update: WatchUpdate) -> list[tuple[str, ...]]:
    """A row of :data:`HEADS` for each play in flight, longest without progress first; none where no process plays them."""
    if update.status is None or not update.running:
        return []
    plays = sorted(update.status["in_flight"], key=lambda play: -float(play["since_progress_s"]))
    return [
        (
            play["play_id"], play["env_id"], play["arm"], play.get("stage", "-"), str(play["turn"]),
            duration(play["elapsed_s"] + update.age_s), f"{duration(play['since_progress_s'] + update.age_s)} ago",
        )
        for play in plays
    ]


def watch_run(
    run_dir: Path, *, follow: bool = True, every_s: float = 1.0, idle_s: float = 10.0,
    sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.time,
) -> Iterator[WatchUpdate]:
    """Look at the run in ``run_dir`` now and, with ``follow``, every ``every_s`` seconds until no process runs it.

    The first look has no events from before it. A look that differs from the one before is given; one that does not, every
    ``idle_s`` seconds, since that nothing changes is news as well. ``now`` is wall time, as that of the status.
    Raises :class:`~spade_agentic.errors.RunDirError` where there is no run.
    """
    StoreReader(run_dir).close()
    run = RunDir(Path(run_dir))
    tail = _Tail(run.events)
    last: dict[str, Any] | None = None
    first, idle = True, 0.0
    while True:
        running = holder(run.lock) is not None
        status, events = read_status(run.status), tail.read()
        if first or events or status != last or not running or idle >= idle_s:
            age_s = max(0.0, now() - status["updated_at"]) if running and status is not None else 0.0
            yield WatchUpdate(running, status, events, age_s)
            idle = 0.0
        if not (follow and running):
            return
        first, last = False, status
        sleep(every_s)
        idle += every_s


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
    return visible(f"{event.get('t', '')[11:19]} {event['event']} {event.get('id', '')} {shown}".rstrip())


def _status_line(update: WatchUpdate) -> str:
    status = update.status
    assert status is not None
    success = ", ".join(f"{arm} {value:.2f}" for arm, value in status["success"].items()) or "-"
    refused = sum(status["refused"].values())
    left = "" if status["left_s"] is None else f", {duration(status['left_s'])} left"
    doing = f"{status['stage']} for {duration(status['stage_s'] + update.age_s)}" if update.running else "not running"
    silent = f", silent for {duration(update.age_s)}" if update.age_s >= SILENT_S else ""
    flying = status["plays_in_flight"] if update.running else 0
    return (
        f"step {status['step']}/{status['steps']} {doing}{silent}: "
        f"{flying} plays in flight, {status['plays_done']} done, success {success}, "
        f"admitted {status['admitted']}, refused {refused}{left}"
    )


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    whole = (HEADS, *rows)
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in whole)
    return ["  " + "  ".join(row).rstrip() for row in padded]
