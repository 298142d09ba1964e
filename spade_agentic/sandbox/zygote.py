"""A zygote: a process that has imported everything that programs need, and forks a supervisor for every worker.

It stays single-threaded, loads no program, and knows no secret. With ``bubblewrap`` it is what runs inside; what it finds
it may do there (pid namespaces, users of their own, Landlock) is probed once, at the start.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import select
import signal
import socket
import sys
from typing import Any

from . import linux, wire
from .boot import PackageFinder
from .supervisor import supervise

__all__ = ["run"]


def probe(wanted: dict[str, Any]) -> dict[str, Any]:
    """What this machine lets a worker be confined with.

    ``user``: a uid of its own; ``pidns``: ``"root"``, ``"user"`` (through a user namespace) or ``""``; ``tmpfs``: a file
    system of its own for its folder; ``landlock``: the kernel's version, 0 without. ``wanted`` may switch each off.
    """
    user = os.geteuid() == 0 and wanted["user"] and _works(lambda: _become(int(wanted["probe_uid"])))
    pidns = ""
    if wanted["pidns"]:
        if _works(lambda: linux.unshare(linux.CLONE_NEWPID)):
            pidns = "root"
        elif os.geteuid() != 0 and _works(lambda: linux.enter_user_namespace(linux.CLONE_NEWPID)):
            pidns = "user"
    tmpfs = pidns != "" and _works(lambda: _own_tmpfs(user_namespace=pidns == "user"))
    return {"user": user, "pidns": pidns, "tmpfs": tmpfs, "landlock": linux.landlock_abi() if wanted["landlock"] else 0}


def _works(attempt: Any) -> bool:
    """Whether ``attempt`` raises no OSError in a child of ours."""
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _own_tmpfs(*, user_namespace: bool) -> None:
    if user_namespace:
        linux.enter_user_namespace()
    linux.private_mounts()
    linux.mount_tmpfs("/tmp", size=1 << 20, uid=os.getuid(), gid=os.getgid())


def _prepare_tools() -> None:
    """Make the schemas of all simulators that were imported, so that no program that builds on one has to."""
    from spade_agentic.envs.contract import ToolEnv

    def visit(cls: type[ToolEnv]) -> None:
        for child in cls.__subclasses__():
            if not inspect.isabstract(child):
                ToolEnv.tools(child())
            visit(child)

    visit(ToolEnv)  # type: ignore[type-abstract]


class Roots:
    """The folders that modules come from, held open, so that they can be read where the path to them cannot be walked."""

    def __init__(self) -> None:
        finder = next(item for item in sys.meta_path if isinstance(item, PackageFinder))
        places = [*sys.path, *finder.locations.values()]
        self.fds = {place: os.open(place, os.O_RDONLY | os.O_CLOEXEC) for place in dict.fromkeys(places)}
        self.finder = finder

    def use_descriptors(self) -> None:
        """Import from now on through the open folders."""
        sys.path[:] = [self._through(entry) for entry in sys.path]
        self.finder.locations = {name: self._through(place) for name, place in self.finder.locations.items()}
        for module in list(sys.modules.values()):
            places = getattr(module, "__path__", None)
            if isinstance(places, list):
                places[:] = [self._through(entry) for entry in places]
        sys.path_importer_cache.clear()

    def _through(self, path: str) -> str:
        for root, fd in sorted(self.fds.items(), key=lambda item: -len(item[0])):
            if path == root or path.startswith(root + "/"):
                return path if root.endswith(".py") else f"/proc/self/fd/{fd}{path[len(root):]}"
        return path


def run(control: socket.socket) -> None:
    """Fork a supervisor for every request, until the spawner closes ``control`` or dies."""
    setup = wire.receive(control)
    if setup is None:
        return
    if setup["parent"]:
        linux.die_with_parent(setup["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    linux.process_name("spade-zygote")
    linux.become_subreaper()
    roots = Roots()
    importlib.import_module("spade_agentic.sandbox.runner")
    files = [name for name, place in roots.finder.locations.items() if place.endswith(".py")]
    for name in [*setup["preload"], *files]:
        importlib.import_module(name)
    _prepare_tools()
    found = probe(setup["wanted"])
    if found["user"]:
        roots.use_descriptors()
    gc.collect()
    gc.freeze()
    wire.send(control, found)
    _serve(control, found, roots)


def _serve(control: socket.socket, found: dict[str, Any], roots: Roots) -> None:
    known: dict[int, int] = {}  # supervisors: pid to pidfd
    while True:
        ready, _, _ = select.select([control.fileno(), *known.values()], [], [])
        _reap(known)
        if control.fileno() not in ready:
            continue
        received = wire.receive_with_fds(control)
        if received is None:
            return
        request, fds = received
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            sockets = [socket.socket(fileno=fd) for fd in fds]
            supervise(request | {"found": found, "zygote": zygote}, roots.fds, sockets[0], sockets[1])
        known[pid] = os.pidfd_open(pid)
        for fd in fds:
            os.close(fd)


def _reap(known: dict[int, int]) -> None:
    """Collect the dead; kill what has become our child without being a supervisor (its supervisor was killed)."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            break
        if pid in known:
            os.close(known.pop(pid))
    for stray in set(linux.children_of(os.getpid())) - set(known):
        linux.kill_under(stray)
