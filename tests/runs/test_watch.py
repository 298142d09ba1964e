"""Watching a run: every play in flight, with its stage, its time and its last progress."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import Any

import pytest

from spade_agentic.hooks.records import Arm
from spade_agentic.runs import WatchUpdate, watch_run
from spade_agentic.runs.progress import read_status
from spade_agentic.runs.watch import SILENT_S, watch_table


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def look(run: Any, **options: Any) -> WatchUpdate:
    (update,) = watch_run(run.run_dir, follow=False, **options)
    return update


@pytest.fixture
def playing(recording: Any) -> Any:
    """A run with 260 plays in flight: one that waits for its environment since 30 s, the others for the policy since 1 s."""
    clock = Clock()
    run = recording(clock=clock)
    run.recorder.stage("playing", plays_expected=260)
    run.recorder.play_started("stuck", "e9", Arm.HINTED)
    run.recorder.play_entered("stuck", "acting")
    clock.now += 29
    for number in range(259):
        run.recorder.play_started(f"p{number}", "e1", Arm.PLAIN)
        run.recorder.play_entered(f"p{number}", "sampling")
    run.recorder.play_progressed("p7")
    clock.now += 1
    run.recorder._status.write(run.recorder.progress, force=True)
    return run


def written_at(run: Any) -> float:
    status = read_status(run.run_dir / "status.json")
    assert status is not None
    return float(status["updated_at"])


def test_every_play_in_flight_is_shown_with_stage_time_and_last_progress(playing: Any) -> None:
    update = look(playing, now=lambda: written_at(playing))
    rows = watch_table(update)
    assert len(rows) == 260
    assert rows[0] == ("stuck", "e9", "hinted", "acting", "0", "30s", "30s ago"), "what waits longest comes first"
    assert {row[1:4] for row in rows[1:]} == {("e1", "plain", "sampling")}
    assert next(row for row in rows if row[0] == "p7")[4:] == ("1", "1s", "1s ago")
    lines = str(update).splitlines()
    assert lines[0].startswith("step 0/3 playing for 30s: 260 plays in flight")
    assert lines[1].split() == ["play", "environment", "arm", "stage", "turns", "elapsed", "last", "progress"]
    assert len(lines) == 262
    assert lines[1].index("stage") == lines[2].index("acting"), "columns stand under their heads"


def test_a_play_that_hangs_is_seen_to_hang_though_nothing_is_written(playing: Any) -> None:
    update = look(playing, now=lambda: written_at(playing) + 90)
    assert watch_table(update)[0][5:] == ("2m00s", "2m00s ago")
    assert "playing for 2m00s, silent for 1m30s:" in str(update)
    assert "silent" not in str(look(playing, now=lambda: written_at(playing) + SILENT_S / 2))
    early = look(playing, now=lambda: written_at(playing) - 5)
    assert early.age_s == 0.0, "a clock that was set back makes no negative times"


def test_a_screen_that_is_too_small_says_how_much_it_leaves_out(playing: Any) -> None:
    lines = look(playing).lines(most=3)
    assert len(lines) == 6
    assert lines[2].split()[0] == "stuck"
    assert lines[-1] == "  ... and 257 more, with later progress"
    assert look(playing).lines(most=260)[-1].split()[3] == "sampling"


def test_a_killed_run_has_nothing_in_flight(playing: Any) -> None:
    playing.recorder.store._lock.release()
    update = look(playing)
    assert not update.running
    assert watch_table(update) == []
    assert str(update).startswith("step 0/3 not running: 0 plays in flight")


def test_plays_of_an_evaluation_are_in_flight_and_count_for_nothing(recording: Any) -> None:
    run = recording()
    run.recorder.stage("evaluating")
    run.recorder.look_on("heldout-1", "w1", Arm.PLAIN)
    run.recorder.play_entered("heldout-1", "sampling")
    run.recorder._status.write(run.recorder.progress, force=True)
    assert [row[:4] for row in watch_table(look(run))] == [("heldout-1", "w1", "plain", "sampling")]
    run.recorder.look_away("heldout-1")
    run.recorder._status.write(run.recorder.progress, force=True)
    update = look(run)
    assert watch_table(update) == []
    assert "0 done" in str(update)
    assert run.recorder.progress.stage == "evaluating"


def test_that_nothing_changes_is_told_from_time_to_time(recording: Any) -> None:
    run = recording()
    run.recorder.stage("updating")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 25:
            run.recorder.end("interrupted")

    updates = list(watch_run(run.run_dir, every_s=1.0, idle_s=10.0, sleep=sleep))
    assert len(updates) == 4, "the first, after 10 s, after 20 s, and the end"


def test_what_a_program_wrote_does_not_reach_the_terminal_as_it_is(recording: Any, make: Any) -> None:
    update = WatchUpdate(True, None, [{"event": "program_refused", "id": "d1", "detail": "\x1b[2J\u202egone"}])
    assert str(update) == r" program_refused d1 detail=\x1b[2J\u202egone"


def test_on_a_terminal_the_run_is_drawn_in_place(recording: Any) -> None:
    run = recording()
    run.commit(1)
    run.recorder.end("finished")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "spade_agentic.cli.main", "runs", "watch", str(run.run_dir)]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=env) as process:
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
        assert process.wait(60) == 0, process.stderr.read()  # type: ignore[union-attr]
    os.close(ours)
    assert b"step 1/3 not running" in shown
    assert b"\x1b[?25l" in shown, "the cursor is hidden while the screen is redrawn"


def _read(descriptor: int) -> bytes:
    """What the terminal got; empty at its end, which Linux reports as an error."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""
