"""Who owns which worker: labels, state folders, users, and the reaper that runs at every start.

The label of an owner is ``spade-sandbox:RUN:PID:TICKS:BOOT``: its process, when that started (clock ticks since boot), and
a name of this boot and pid namespace, so that a pid used again is not mistaken for it. The label stands in the arguments
of every process of the sandbox, and names the owner's folder under the runtime folder.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spade_agentic.errors import SandboxError

from . import linux

__all__ = ["Owner", "UserPool", "reap_orphans", "runtime_folder"]

_LABEL = re.compile(r"spade-sandbox:(?P<run>[A-Za-z0-9._-]+):(?P<pid>\d+):(?P<ticks>\d+):(?P<boot>[0-9a-f]+)")
_USERS = 4096
_HIGH, _LOW = 0x6000_0000, 61_200
"""Worker users are drawn from the first range, which nobody assigns, or where that is not mapped from the second."""


def runtime_folder() -> Path:
    """The folder of this user's sandboxes. Others may pass through it (workers have users of their own), not list it."""
    folder = Path(tempfile.gettempdir()) / f"spade-agentic-{os.geteuid()}"
    folder.mkdir(mode=0o711, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o170022 != 0o040000:
        raise SandboxError(f"{folder} is not a folder that only this user can write to; remove it")
    return folder


def _boot() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").replace("-", "")[:12]
    return boot + f"{os.stat('/proc/self/ns/pid').st_ino:x}"


@dataclass(frozen=True, slots=True)
class Owner:
    """This process, as the owner of one sandbox."""

    label: str
    folder: Path

    @classmethod
    def claim(cls, run: str) -> Owner:
        """A label and a fresh folder for ``run``."""
        pid = os.getpid()
        name = re.sub(r"[^A-Za-z0-9._-]", "-", run) or "run"
        ticks = linux.start_ticks(pid)
        label = f"spade-sandbox:{name}:{pid}:{ticks}:{_boot()}"
        folder = Path(tempfile.mkdtemp(prefix=label + ":", dir=runtime_folder()))
        folder.chmod(0o711)
        return cls(label, folder)

    def release(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class UserPool:
    """Users for workers, each lent to one worker on this machine at a time (a lock file, so also across runs)."""

    def __init__(self) -> None:
        self._base = _HIGH if _mapped(_HIGH + _USERS) else _LOW
        self._folder = runtime_folder() / "users"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._held: dict[int, int] = {}
        self._next = os.getpid() % _USERS
        self.probe = self._base

    def take(self) -> int:
        """A uid that nobody else uses. Raises :class:`SandboxError` where all are taken."""
        for _ in range(_USERS):
            self._next = self._next % (_USERS - 1) + 1
            uid = self._base + self._next
            if uid in self._held or _is_somebody(uid):
                continue
            fd = os.open(self._folder / str(uid), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                continue
            self._held[uid] = fd
            return uid
        raise SandboxError("no user is left for a worker")

    def give_back(self, uid: int) -> None:
        os.close(self._held.pop(uid))


def _mapped(uid: int) -> bool:
    rows = (line.split() for line in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines())
    return any(int(start) <= uid < int(start) + int(count) for start, _, count in rows)


def _is_somebody(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def reap_orphans() -> list[str]:
    """Kill what dead owners of this user have left running and remove their folders; returns their labels."""
    reaped: list[str] = []
    boot = _boot()
    for folder in sorted(runtime_folder().glob("spade-sandbox:*")):
        match = _LABEL.match(folder.name)
        if match is None or match["boot"][12:] != boot[12:]:
            continue  # another pid namespace: nothing is known about it here
        if match["boot"] == boot and linux.start_ticks(int(match["pid"])) == int(match["ticks"]):
            continue
        for pid in _labelled(match[0]):
            linux.kill_under(pid)
        shutil.rmtree(folder, ignore_errors=True)
        reaped.append(match[0])
    return reaped


def _labelled(label: str) -> Iterator[int]:
    """Processes with this label in their arguments."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            arguments = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if label.encode() in arguments and int(name) != os.getpid():
            yield int(name)


