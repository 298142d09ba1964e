"""One process per run directory.

A POSIX record lock, because children that fork do not inherit it: a sandbox worker that outlives a killed run does not keep
the run locked. Such a lock belongs to the process, not to the descriptor, so a registry refuses a second store in this one.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from spade_agentic.errors import RunDirError

from .files import run_dir_error

__all__ = ["Holder", "RunLock", "holder"]

ELSEWHERE = "wait for it to end or stop it, or give this run a folder of its own with --run-dir"

_held_here: dict[str, RunLock] = {}
_RETRIES, _RETRY_S = 5, 0.05
"""Whoever asks for the holder takes a shared lock for a moment; that must not stop a run from starting."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Which process runs here."""

    pid: int
    host: str


class RunLock:
    """The lock on one folder, from construction to :meth:`release`. Raises :class:`RunDirError` naming the holder.

    ``todo`` is what the error tells the user to do; by default what fits a run directory.
    """

    def __init__(self, path: Path, *, todo: str = ELSEWHERE) -> None:
        self._key = str(path.resolve())
        self._owner_pid = os.getpid()
        if self._key in _held_here and _held_here[self._key]._owner_pid == os.getpid():
            raise _locked(path, Holder(os.getpid(), socket.gethostname()), todo)
        try:
            self._file: IO[str] = path.open("a+", encoding="utf-8")
        except OSError as error:
            mended = run_dir_error("locking the run", path, error)
            if mended is None:
                raise
            raise mended from error
        for attempt in range(_RETRIES):
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if attempt + 1 == _RETRIES:
                    owner = _read(path)
                    self._file.close()
                    raise _locked(path, owner, todo) from error
                time.sleep(_RETRY_S)
        try:
            self._file.truncate(0)
            self._file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
            self._file.flush()
        except OSError:
            with suppress(OSError):  # closing tries to write it once more
                self._file.close()
            raise
        _held_here[self._key] = self

    def release(self) -> None:
        """Let others in. The file stays: removing it would let two processes lock two files of one name."""
        if _held_here.get(self._key) is self:
            del _held_here[self._key]
            self._file.close()


def holder(path: Path) -> Holder | None:
    """The process that holds the lock file ``path`` now, or ``None``; takes no more than a moment's shared lock."""
    mine = _held_here.get(str(path.resolve()))
    if mine is not None and mine._owner_pid == os.getpid():
        # Opening and closing the file here would drop our own lock: POSIX record locks work that way.
        return Holder(os.getpid(), socket.gethostname())
    try:
        file = path.open(encoding="utf-8")
    except FileNotFoundError:
        return None
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(path) or Holder(0, "unknown")
        return None


def _read(path: Path) -> Holder | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Holder(int(data["pid"]), str(data["host"]))
    except (OSError, ValueError, KeyError):
        return None  # the holder has the lock and has not yet written its name


def _locked(path: Path, owner: Holder | None, todo: str) -> RunDirError:
    who = f"process {owner.pid} on {owner.host}" if owner else "another process"
    return RunDirError(f"{who} is running in this folder", where=str(path.parent), todo=todo)
