"""Running the cells of a table: each as ``spade-agentic train`` in a process of its own, skipped, begun or resumed.

The job has no state but its runs. Killed anywhere, it is started again with the same words and goes on: what is finished is
skipped, what is half done is resumed. A run dies with its job (or, where a signal reaches it first, ends as it does alone).
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from spade_agentic.errors import SpadeError
from spade_agentic.runs.lock import RunLock
from spade_agentic.sandbox.linux import die_with_parent

from .cells import Cell

__all__ = ["LOCK", "Job", "Report", "run_cells"]

LOCK = "bench.lock"
POLL_S = 0.2
TRAIN = (sys.executable, "-m", "spade_agentic.cli.main", "train")
"""How a run is started; what follows are the words of ``spade-agentic train``."""

Report = Callable[[Cell, str], None]
"""Told what happens to a cell, in words."""


@dataclass(slots=True)
class Job:
    """What :func:`run_cells` did: ``failed`` says of a cell why it is not finished; ``stopped`` is the signal that ended it."""

    failed: dict[str, str] = field(default_factory=dict)
    stopped: signal.Signals | None = None


@dataclass(slots=True)
class _Running:
    cell: Cell
    process: subprocess.Popen[bytes]
    began: float


def run_cells(
    cells: Sequence[Cell], root: Path, *, jobs: int = 1, sets: Sequence[str] = (), plugins: Sequence[str] = (),
    report: Report = lambda cell, text: None, finished: Callable[[], None] = lambda: None, train: Sequence[str] = TRAIN,
) -> Job:
    """Bring every cell to its end, ``jobs`` of them at a time; ``finished`` is called whenever one got there.

    A cell that fails leaves the others alone. SIGINT and SIGTERM are passed on to the runs, which keep what they committed.
    Raises :class:`~spade_agentic.errors.RunDirError` where another process runs a table in ``root``.
    """
    root.mkdir(parents=True, exist_ok=True)
    start = functools.partial(_start, train, sets, plugins)
    lock = RunLock(root / LOCK, todo="wait for that table, stop it, or give this one a folder of its own with --dir")
    job = Job()
    waiting, running, told = deque(cells), list[_Running](), set[str]()
    try:
        for cell in cells:
            cell.state()  # what cannot be continued is said before anything is begun
        with _passing_signals_on(running, job):
            while (waiting and job.stopped is None) or running:
                if job.stopped is None:
                    _start_what_can(waiting, running, told, jobs, start, report)
                time.sleep(POLL_S)
                for done in [r for r in running if r.process.poll() is not None]:
                    running.remove(done)
                    _settle(done, report, job)
                    finished()
    finally:
        for left in running:
            left.process.terminate()
            left.process.wait()
        lock.release()
    return job


def _start_what_can(
    waiting: deque[Cell], running: list[_Running], told: set[str], jobs: int, start: Callable[[Cell, bool], _Running],
    report: Report,
) -> None:
    """Start cells while there is room. One that another process runs is left at the end of the queue until it lets go."""
    for _ in range(len(waiting)):
        if len(running) >= jobs:
            return
        cell = waiting.popleft()
        state = cell.state()
        if state == "running":
            waiting.append(cell)
            if cell.label not in told:
                told.add(cell.label)
                owner = cell.holder()
                report(cell, f"process {owner.pid} runs it: waiting" if owner else "another process runs it: waiting")
        elif state == "finished":
            report(cell, "finished before: skipped")
        else:
            summary = cell.summary()
            report(cell, "begins" if summary is None else f"resumed after step {summary.steps} of {summary.steps_planned}")
            running.append(start(cell, state == "unfinished"))


def _start(train: Sequence[str], sets: Sequence[str], plugins: Sequence[str], cell: Cell, resume: bool) -> _Running:
    command = [*train, "--run-dir", str(cell.folder)]
    if resume:
        command.append("--resume")  # with the configuration on record, which is the same
    else:
        command.append(cell.source)
        for option, values in (("--set", [*sets, f"run.seed={cell.seed}"]), ("--plugin", plugins)):
            command += [word for value in values for word in (option, value)]
    with cell.log.open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            # A session of its own: a Ctrl-C is passed on by us, once. This process has no thread that could hold a lock.
            start_new_session=True, preexec_fn=functools.partial(die_with_parent, os.getpid(), signal.SIGTERM),
        )
    return _Running(cell, process, time.monotonic())


def _settle(done: _Running, report: Report, job: Job) -> None:
    """Say how a run ended; what counts is what its directory says, not what the process returned."""
    cell, code = done.cell, done.process.returncode
    state = cell.state()
    if state == "finished":
        job.failed.pop(cell.label, None)
        report(cell, f"finished in {(time.monotonic() - done.began) / 60:.1f} min")
        return
    summary = cell.summary()
    at = f"at step {summary.steps} of {summary.steps_planned}" if summary is not None else "before its first step"
    if job.stopped is not None:
        report(cell, f"stopped {at}")
        return
    job.failed[cell.label] = f"ended {at} with exit code {code}; see {cell.log}"
    report(cell, job.failed[cell.label])


@contextmanager
def _passing_signals_on(running: Sequence[_Running], job: Job) -> Iterator[None]:
    """While inside, SIGINT and SIGTERM stop the job and go on to its runs."""
    if threading.current_thread() is not threading.main_thread():
        raise SpadeError("a table is run from the main thread: signals belong to it")

    def pass_on(number: int, frame: object) -> None:
        job.stopped = signal.Signals(number)
        for item in running:
            if item.process.poll() is None:
                item.process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
