"""Runs that are ended from outside: signals, a terminal that is closed, output that nobody reads or that cannot be written."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bad_day_page import BadDay
from bad_day_runs import ToyRuns

from spade_agentic.cli import main as cli_main
from spade_agentic.runs.live import TerminalView
from spade_agentic.runs.progress import Progress


@pytest.fixture(autouse=True)
def _a_terminal_that_hangs_up_is_heard() -> Iterator[None]:
    """However these tests were started: under ``nohup`` they, and what they start, would be deaf to SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def whole(runs: ToyRuns) -> Any:
    """What an uninterrupted run stores."""
    assert runs.train().code == 0
    content = runs.content()
    runs.run.rename(runs.folder / "whole")
    return content


def signalled(runs: ToyRuns, monkeypatch: pytest.MonkeyPatch, where: str, *which: signal.Signals) -> Any:
    """The toy run, with signals sent to it when the call ``where`` is made."""
    log = runs.toy.log
    with monkeypatch.context() as patch:

        def send(call: str) -> None:
            log(call)
            if call == where:
                for number in which:
                    os.kill(os.getpid(), number)
                    if threading.current_thread() is not threading.main_thread():
                        time.sleep(0.1)  # an update takes its time, and the loop hears of the signal meanwhile

        async def publish(self: Any, *weights: Any) -> None:
            await toys_publish(self, *weights)
            await asyncio.sleep(0.05)  # likewise

        toys_publish = runs.toy.LoggedEngine.publish
        patch.setattr(runs.toy.LoggedEngine, "publish", publish)
        patch.setattr(runs.toy, "log", send)
        return runs.train()


def resumed(runs: ToyRuns, whole: Any) -> None:
    """The run goes on from its last commit, and ends as if nothing had happened."""
    assert runs.status() == "interrupted"
    assert runs.resume().code == 0
    assert runs.content() == whole


@pytest.mark.bad_day("Ctrl-C once")
def test_a_first_ctrl_c_ends_after_the_step_in_progress(
    day: BadDay, runs: ToyRuns, whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    day.seen(signalled(runs, monkeypatch, "learner.step 1", signal.SIGINT))
    assert runs.steps() == 2, "the step that was under way is committed"
    assert [event["step"] for event in runs.events("stop_requested")] == [2]
    resumed(runs, whole)


@pytest.mark.bad_day("Ctrl-C once")
def test_a_first_ctrl_c_in_the_last_step_leaves_the_last_evaluation_to_the_resume(
    runs: ToyRuns, whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert signalled(runs, monkeypatch, "learner.step 3", signal.SIGINT).code == 130
    assert runs.steps() == 4
    resumed(runs, whole)


@pytest.mark.bad_day("Ctrl-C twice")
def test_a_second_ctrl_c_ends_at_once(day: BadDay, runs: ToyRuns, whole: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    day.seen(signalled(runs, monkeypatch, "learner.step 1", signal.SIGINT, signal.SIGINT))
    assert runs.steps() == 1, "the step that was under way is given up"
    resumed(runs, whole)


@pytest.mark.bad_day("Ctrl-C between two steps")
@pytest.mark.parametrize("where", ["evaluate 0", "engine.publish 1"])
def test_a_ctrl_c_where_no_step_is_under_way_ends_at_once(
    day: BadDay, runs: ToyRuns, whole: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    day.seen(signalled(runs, monkeypatch, where, signal.SIGINT))
    assert runs.steps() == (0 if where == "evaluate 0" else 1)
    resumed(runs, whole)


@pytest.mark.bad_day("SIGTERM, or a terminal that is closed")
@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_sighup_end_at_once(
    day: BadDay, runs: ToyRuns, whole: Any, monkeypatch: pytest.MonkeyPatch, which: signal.Signals
) -> None:
    day.seen(signalled(runs, monkeypatch, "learner.step 1", which))
    assert runs.steps() == 1
    resumed(runs, whole)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


@pytest.mark.bad_day("a terminal that is closed under nohup")
def test_under_nohup_a_closed_terminal_ends_nothing(day: BadDay, runs: ToyRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        result = signalled(runs, monkeypatch, "learner.step 1", signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    day.seen(result)
    assert (runs.steps(), runs.status()) == (4, "finished")


# --- processes of their own ----------------------------------------------------------------------------------------------


def start(runs: ToyRuns, **how: Any) -> subprocess.Popen[str]:
    """The toy run in a process of its own."""
    command = [sys.executable, str(Path(__file__).parents[1] / "helpers" / "bad_day_child.py"), "train"]
    command += [str(runs.config([], run={"steps": 4})), "--run-dir", str(runs.run)]
    return subprocess.Popen(command, text=True, **how)


@pytest.mark.bad_day("nobody reads what is printed")
def test_a_run_whose_output_goes_nowhere_takes_its_steps(day: BadDay, runs: ToyRuns) -> None:
    process = start(runs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    assert process.wait(60) == day.code
    assert (runs.steps(), runs.status()) == (4, "finished")
    assert [event["error"] for event in runs.events("view_failed")] == ["BrokenPipeError: [Errno 32] Broken pipe"]
    day.seen_in((runs.run / "events.jsonl").read_text())


def test_a_terminal_that_goes_away_takes_nothing_with_it(runs: ToyRuns) -> None:
    """The whole way: a session with a terminal, the terminal closed, SIGHUP, and everything written to it an error."""
    ours, theirs = os.openpty()
    slow = runs.plugin("""
        import time
        from spade_agentic import hookimpl

        @hookimpl
        def play_finished():
            time.sleep(0.05)
    """)
    command = [sys.executable, str(Path(__file__).parents[1] / "helpers" / "bad_day_child.py"), "train"]
    command += [str(runs.config([slow], run={"steps": 50})), "--run-dir", str(runs.run)]
    script = f"import fcntl, os, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv({command[0]!r}, {command!r})"
    ends = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = subprocess.Popen([sys.executable, "-c", script], **ends, start_new_session=True)
    os.close(theirs)
    try:
        until(lambda: any(runs.run.glob("checkpoints/step-*")), process)
    finally:
        os.close(ours)
    assert process.wait(60) in (130, 141)
    assert runs.status() == "interrupted"
    assert runs.steps() < 50
    assert runs.resume("--set", f"run.steps={runs.steps() + 1}").code == 0


def until(condition: Callable[[], bool], process: subprocess.Popen[Any], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"it ended with {process.returncode}"
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)


# --- what cannot be shown --------------------------------------------------------------------------------------------------


@pytest.mark.bad_day("a terminal that is not UTF-8")
def test_what_the_terminal_cannot_say_is_escaped(day: BadDay, runs: ToyRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    result = runs.train()
    assert result.code == 0
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    for arguments in (["runs", "report"], ["runs", "show"], ["runs", "list"], ["runs", "watch", "--once"]):
        where = [] if arguments[-1] == "list" else [str(runs.run)]
        with pytest.raises(SystemExit) as ended:
            cli_main.main([*arguments, *where, "--root", str(runs.folder)])
        assert ended.value.code in (0, None), arguments
    out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    day.seen_in(out.buffer.getvalue().decode("ascii"))


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.bad_day("a terminal of a few columns")
@pytest.mark.parametrize(("columns", "lines"), [(1, 1), (2, 40), (7, 2), (20, 3)])
def test_the_smallest_terminal_is_drawn_on(
    day: BadDay, runs: ToyRuns, monkeypatch: pytest.MonkeyPatch, columns: int, lines: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen()
    view = TerminalView(screen)
    view.open(Progress("a-run-with-a-long-name", steps=3))
    view.step_done()
    view.evaluated(1, "heldout", {"heldout/sampled": 0.5, "heldout/sampled_low": 0.4, "heldout/sampled_high": 0.6})
    view.close()
    day.seen_in(screen.getvalue().replace("\n", ""))
