"""The supervisor: one for each worker, outside the program's reach where the machine allows it.

It confines and forks the runner, watches the whole tree (memory, number of processes), answers audits from what the
kernel says and not from what the program says, and kills everything when the host says so, closes its end of the
*leash*, or dies. Daemons do not escape: the tree is killed through its pid namespace, else through its own uid, else
by walking the descendants of this process, to which every orphan among them returns.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import shutil
import signal
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from . import linux, wire

__all__ = ["supervise"]

_WATCH_LOADING_S, _WATCH_S = 0.05, 0.5
_MAX_FILES = 64
_SETTLE, _SETTLE_S = 20, 0.005
_MB = 1 << 20
_T = TypeVar("_T")
_READABLE = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo", "/dev/urandom", "/dev/zero", "/etc/localtime")


def supervise(request: dict[str, Any], roots: dict[str, int], work: socket.socket, leash: socket.socket) -> NoReturn:
    """Serve one worker in a fresh child of the zygote; never returns."""
    try:
        _Supervisor(request, roots, work, leash).run()
    except BaseException:
        try:
            wire.send(leash, {"error": traceback.format_exc()[-2000:]})
        finally:
            os._exit(1)
    os._exit(0)


class _Supervisor:
    def __init__(self, request: dict[str, Any], roots: dict[str, int], work: socket.socket, leash: socket.socket) -> None:
        self.request = request
        self.found = request["found"]
        self.limits = request["limits"]
        self.folder = request["folder"]
        self.uid = int(request["uid"]) if self.found["user"] else 0
        self.roots = roots
        self.work = work
        self.leash = leash
        self.runner = 0
        self.alive = False
        self.loading = True
        self.sealed = False

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._on_parent_death)
        linux.die_with_parent(self.request["zygote"], signal.SIGTERM)
        _close_all_but({0, 1, 2, self.work.fileno(), self.leash.fileno(), *self.roots.values()})
        os.setsid()
        linux.process_name("spade-worker")
        linux.become_subreaper()
        self._isolate()
        self._fork_runner()
        self.work.close()
        self.baseline = self._look()
        wire.send(self.leash, {"ready": True, "pid": os.getpid(), "runner": self.runner})
        try:
            farewell = self._watch()
        finally:
            self._kill()
            self._clean()
        with suppress(OSError):  # the host may have closed the leash, which is how it asks for this when it does not wait
            wire.send(self.leash, farewell | {"gone": True})

    # -- before the runner

    def _isolate(self) -> None:
        os.makedirs(self.folder, mode=0o700)
        uid, gid = os.getuid(), os.getgid()
        if self.found["pidns"] == "user":
            linux.enter_user_namespace()
        if self.found["tmpfs"]:
            linux.private_mounts()
            size = self.limits["disk_mb"] * _MB
            linux.mount_tmpfs(self.folder, size=size, uid=self.uid or uid, gid=self.uid or gid)
        elif self.uid:
            os.chown(self.folder, self.uid, self.uid)
        if self.found["pidns"]:
            linux.unshare(linux.CLONE_NEWPID)

    def _fork_runner(self) -> None:
        supervisor = os.getpid()
        listening, ready = os.pipe()
        self.runner = os.fork()
        if self.runner == 0:
            try:
                os.close(listening)
                self.leash.close()
                self._confine(supervisor)
                from .runner import serve

                os.write(ready, b"+")
            except BaseException:
                os.write(ready, traceback.format_exc()[-2000:].encode())
                os._exit(1)
            os.close(ready)
            serve(self.work, self.limits)
        self.alive = True
        os.close(ready)
        with open(listening, "rb") as said_by_runner:  # to its end: then the runner has closed its own, too
            said = said_by_runner.read()
        if said != b"+":
            raise RuntimeError(f"the runner could not be confined: {said.decode(errors='replace')}")

    def _confine(self, supervisor: int) -> None:
        """Everything that must be gone before a program is loaded is given up here, in the runner."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        Path("/proc/self/oom_score_adj").write_text("1000")
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)
        _set_limits(self.limits, own_user=bool(self.uid))
        if self.uid:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)
        linux.make_dumpable()
        linux.drop_capabilities()
        linux.no_new_privileges()
        linux.die_with_parent(0 if self.found["pidns"] else supervisor)
        os.umask(0o077)
        os.chdir(self.folder)
        if self.found["landlock"]:
            self._landlock()
        if not self.uid:
            for fd in self.roots.values():
                os.close(fd)

    def _landlock(self) -> None:
        rules = linux.Landlock()
        for fd in self.roots.values():
            rules.allow(fd)
        for path, write in [(self.folder, True), ("/dev/null", True), *((path, False) for path in _READABLE)]:
            if os.path.exists(path):
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
                rules.allow(fd, write=write)
                os.close(fd)
        rules.enforce()

    # -- while it runs

    def _watch(self) -> dict[str, Any]:
        """Until the tree has to go; returns what to tell the host about it."""
        leash, pidfd = self.leash.fileno(), os.pidfd_open(self.runner)
        while True:
            ready, _, _ = select.select([leash, pidfd], [], [], _WATCH_LOADING_S if self.loading else _WATCH_S)
            if leash in ready:
                request = wire.receive(self.leash)
                if request is None or request["op"] == "kill":
                    return {}
                self.loading = False
                answer = self._audit(int(request["plays"])) if request["op"] == "audit" else {}
                if answer and not self.sealed:
                    answer["descriptors"] += self._seal()
                    self.sealed = True
                wire.send(self.leash, {"audit": answer})
            if pidfd in ready:
                status = os.waitpid(self.runner, 0)[1]
                self.alive = False
                return {"exited": os.waitstatus_to_exitcode(status)}
            exceeded = self._exceeded()
            if exceeded:
                return {"exceeded": exceeded}

    def _exceeded(self) -> str | None:
        tree = list(linux.descendants(os.getpid()))
        if len(tree) > self.limits["processes"]:
            return "processes"
        most = self.limits["tree_memory_mb"] * _MB
        if linux.resident_bytes(tree) <= most:
            return None
        return "memory" if self._as_user(lambda: linux.shared_bytes(tree)) > most else None

    def _audit(self, plays: int) -> dict[str, int]:
        """What the worker has beyond its one thread, its plays, and what it was given."""
        for _ in range(_SETTLE):  # a play that was closed just now may still be on its way out
            children = [pid for pid in linux.children_of(self.runner) if linux.start_ticks(pid) is not None]
            strays = set(linux.children_of(os.getpid())) - {self.runner}
            if len(children) <= plays and not strays:
                break
            time.sleep(_SETTLE_S)
        before, now = self.baseline, self._look()
        new = dict(set(now["descriptors"].items()) - set(before["descriptors"].items()))
        watching = sum(target == "anon_inode:[pidfd]" for target in new.values())  # the runner has one for each play
        return {
            "threads": now["threads"] - 1,
            "children": max(0, len(children) - plays) + len(strays),
            "descriptors": len(new) - min(watching, plays),
            "maps": len(now["maps"] - before["maps"]),
        }

    def _seal(self) -> int:
        """Let no play write a file, which another could read. Returns how many are open for writing, which forbids it."""
        if self.found["tmpfs"]:
            try:
                linux.make_read_only(self.folder)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                return 1
        elif self.uid:
            for folder, _, files in os.walk(self.folder):
                for path in (folder, *(os.path.join(folder, file) for file in files)):
                    os.chown(path, 0, 0, follow_symlinks=False)
            os.chmod(self.folder, 0o755)
        return 0

    def _look(self) -> dict[str, Any]:
        return self._as_user(lambda: _look_at(self.runner))

    def _as_user(self, look: Callable[[], _T]) -> _T:
        """/proc shows a process's descriptors and maps to its own user."""
        if self.uid:
            linux.borrow_user(self.uid, self.uid)
        try:
            return look()
        finally:
            if self.uid:
                linux.borrow_user(0, 0)

    # -- the end

    def _kill(self) -> None:
        """Kill the whole tree and wait until nothing of it is left."""
        if self.found["pidns"]:
            if self.alive:  # it is the namespace's first process: all others die with it
                os.kill(self.runner, signal.SIGKILL)
        elif self.uid:
            self._kill_user()
        while True:
            for pid in linux.children_of(os.getpid()):
                linux.kill_under(pid)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return

    def _kill_user(self) -> None:
        """``kill(-1)`` as the worker's own user: the kernel signals all of its processes in one go."""
        pid = os.fork()
        if pid == 0:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)
            try:
                os.kill(-1, signal.SIGKILL)
            finally:  # there may have been nothing left to kill
                os._exit(0)
        os.waitpid(pid, 0)

    def _clean(self) -> None:
        if self.found["tmpfs"]:
            linux.unmount(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)  # what it leaves, the owner's state folder takes along

    def _on_parent_death(self, number: int, frame: object) -> None:
        self._kill()
        self._clean()
        os._exit(1)


def _look_at(pid: int) -> dict[str, Any]:
    """Threads, descriptors and writable shared maps of a process."""
    descriptors = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed since it was listed: not held any more
            descriptors[name] = os.readlink(f"/proc/{pid}/fd/{name}")
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        maps = {line for line in file if line.split()[1].endswith("s") and "w" in line.split()[1]}
    return {"threads": len(os.listdir(f"/proc/{pid}/task")), "descriptors": descriptors, "maps": maps}


def _set_limits(limits: dict[str, int], *, own_user: bool) -> None:
    linux.set_limit(resource.RLIMIT_AS, limits["memory_mb"] * _MB)
    linux.set_limit(resource.RLIMIT_FSIZE, limits["file_mb"] * _MB)
    linux.set_limit(resource.RLIMIT_CPU, limits["worker_cpu_s"])
    linux.set_limit(resource.RLIMIT_NOFILE, _MAX_FILES)
    for none in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
        linux.set_limit(none, 0)
    if own_user:
        linux.set_limit(resource.RLIMIT_NPROC, limits["processes"])


def _close_all_but(keep: set[int]) -> None:
    start = 0
    for fd in sorted(keep):
        if start < fd:  # an empty range that begins at 0 closes everything (Python 3.11)
            os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, 65536)
