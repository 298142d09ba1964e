"""The sandboxes that a run uses: a pool of workers, least recently used ones making room."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from spade_agentic.errors import SandboxError, SandboxUnavailable
from spade_agentic.hooks.records import Program

from . import bubblewrap
from .channel import Channel
from .layout import Layout
from .options import SandboxOptions
from .owners import Owner, UserPool, reap_orphans
from .wire import ProtocolError
from .worker import Play, Worker

__all__ = ["AutoSandbox", "BubblewrapSandbox", "LoadedProgram", "PooledSandbox", "ProcessSandbox"]

_log = structlog.get_logger("spade_agentic.sandbox")
_HASH_SEEDS = (0, 1)
_STOP_S = 10.0


class LoadedProgram:
    """A program that has been loaded once, and is loaded again where its worker had to make room or was killed."""

    def __init__(self, sandbox: PooledSandbox, program: Program, variant: int) -> None:
        self.program = program
        self.variant = variant
        self.manifest: Mapping[str, Any] = {}
        self.worker: Worker | None = None
        self.users = 0
        self.closed = False
        self.lock = asyncio.Lock()
        self._sandbox = sandbox

    async def play(self) -> Play:
        """Raises :class:`EnvironmentFault` where the program does not load again."""
        assert not self.closed, "the program is closed"
        return await self._sandbox.open_play(self)

    async def close(self) -> None:
        """Kill the worker, plays and all."""
        if not self.closed:
            self.closed = True
            await self._sandbox.close_program(self)


class PooledSandbox:
    """What both backends share. ``found`` says how workers are confined on this machine (after ``start``)."""

    name = "process"

    def __init__(
        self, options: SandboxOptions | None = None, *, run: str = "run", wanted: Mapping[str, bool] | None = None
    ) -> None:
        """``run`` is part of the owner's label. ``wanted`` switches means of confinement off: for tests and ``doctor``."""
        self.options = options or SandboxOptions()
        self.found: Mapping[str, Any] = {}
        self._run = run
        self._wanted = {"user": True, "pidns": True, "landlock": True} | dict(wanted or {})
        self._owner: Owner | None = None
        self._programs: dict[int, LoadedProgram] = {}  # those with a worker, least recently used first
        self._live = 0
        self._loads: dict[str, int] = {}
        self._count = 0

    def _wrapper(self, layout: Layout) -> list[str]:
        return []

    # -- start and stop

    async def start(self) -> None:
        """Reap what dead runs left, start the spawner and wait for its zygotes. Call it before torch is imported."""
        assert self._owner is None, "started twice"
        layout = Layout.here(self.options.packages)
        wrapper = self._wrapper(layout)
        reaped = reap_orphans()
        if reaped:
            _log.info("sandbox_reaped", owners=reaped)
        self._gate = asyncio.Semaphore(self.options.concurrency)
        self._room = asyncio.Condition()
        self._control_lock = asyncio.Lock()
        self._users = UserPool() if os.geteuid() == 0 else None
        self._owner = Owner.claim(self._run)
        self._inside = "/tmp" if wrapper else str(self._owner.folder)
        try:
            await self._start_spawner(layout, wrapper)
        except BaseException:
            await self.stop()
            raise
        _log.debug("sandbox_started", backend=self.name, **self.found)

    async def _start_spawner(self, layout: Layout, wrapper: list[str]) -> None:
        assert self._owner is not None
        ours, theirs = socket.socketpair()
        self._control = Channel(ours)
        boot = str(Path(__file__).with_name("boot.py"))
        arguments = ["spawner", self._owner.label, str(theirs.fileno()), layout.text()]
        log = self._owner.folder / "spawner.log"
        with theirs, log.open("wb") as file:
            # asyncio's own subprocesses are watched by threads or signals; this one is asked about, in stop
            self._spawner = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-s", "-S", "-P", "-B", boot, *arguments], env={"LC_ALL": "C.UTF-8"}, cwd="/",
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file,
            )  # fmt: skip
        wanted = self._wanted | {"probe_uid": self._users.probe if self._users else 0}
        setup = {
            "host": os.getpid(),
            "die_with_parent": threading.current_thread() is threading.main_thread(),
            "hash_seeds": _HASH_SEEDS,
            "wrapper": wrapper,
            "zygote": {"preload": self.options.preload, "wanted": wanted},
        }
        try:
            async with asyncio.timeout(self.options.start_timeout_s):
                answer = await self._control.ask(setup)
        except TimeoutError:
            answer = {"error": f"no answer within {self.options.start_timeout_s:g} s"}
        if answer is None or "error" in answer:
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            what = (answer or {}).get("error", "the spawner ended")
            raise SandboxError(f"the {self.name} sandbox did not start: {what} {' '.join(said)}".strip())
        self.found = answer

    async def stop(self) -> None:
        """Kill every worker, end the spawner, remove the state folder. May be called twice."""
        owner, self._owner = self._owner, None
        if owner is None:
            return
        await asyncio.gather(*(self._drop(item) for item in list(self._programs.values())))
        self._control.close()
        try:
            async with asyncio.timeout(_STOP_S):
                while self._spawner.poll() is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
        except TimeoutError:
            self._spawner.kill()
            self._spawner.wait()
        owner.release()

    # -- programs and plays

    async def load(self, program: Program) -> LoadedProgram:
        """Load a program in a fresh worker. Each further load of one program gets another hash seed in turn.

        Raises :class:`EnvironmentFault` where the program is at fault and :class:`SandboxError` where we are.
        """
        turn = self._loads.get(program.program_id, 0)
        self._loads[program.program_id] = turn + 1
        loaded = LoadedProgram(self, program, turn % len(_HASH_SEEDS))
        async with loaded.lock:
            await self._ensure(loaded)
        return loaded

    async def open_play(self, loaded: LoadedProgram) -> Play:
        await self._wait(lambda: loaded.users < self.options.plays, f"{self.options.plays} plays of one program are open")
        loaded.users += 1
        try:
            async with loaded.lock:
                worker = await self._ensure(loaded)
                play = await worker.open()
        except BaseException:
            await self._release(loaded)
            raise
        play.on_close = lambda: self._release(loaded)
        return play

    async def close_program(self, loaded: LoadedProgram) -> None:
        async with loaded.lock:
            await self._drop(loaded)

    async def _release(self, loaded: LoadedProgram) -> None:
        loaded.users -= 1
        async with self._room:
            self._room.notify_all()

    async def _ensure(self, loaded: LoadedProgram) -> Worker:
        """The program's worker, started where there is none (any more). The caller holds the program's lock."""
        if self._owner is None:
            raise SandboxError("the sandbox is not running")
        if loaded.worker is not None and loaded.worker.alive:
            self._programs[id(loaded)] = self._programs.pop(id(loaded))
            return loaded.worker
        await self._drop(loaded)
        await self._make_room()
        self._programs[id(loaded)] = loaded
        worker = loaded.worker = Worker(loaded.program, self.options, self._gate)
        uid = self._users.take() if self._users else 0
        self._count += 1
        request = {
            "variant": loaded.variant, "uid": uid, "folder": f"{self._inside}/w{self._count}",
            "limits": self.options.guest_limits(),
        }  # fmt: skip
        worker.on_gone = lambda: self._give_back(uid)
        try:
            await worker.start(lambda work, leash: self._request(request, [work, leash]))
        except BaseException:
            await self._drop(loaded)
            raise
        loaded.manifest = worker.manifest
        return worker

    async def _request(self, request: dict[str, Any], fds: list[int]) -> None:
        try:
            async with self._control_lock:
                await self._control.send_with_fds(request, fds)
        except (OSError, ProtocolError) as error:
            raise SandboxError(f"the sandbox's spawner is gone: {error}") from error

    async def _make_room(self) -> None:
        """Take one of the places for workers; the worker that was used longest ago and is not played makes way."""

        def room() -> bool:
            return self._live < self.options.workers or self._idle() is not None

        await self._wait(room, f"all {self.options.workers} workers are played")
        idle = self._idle() if self._live >= self.options.workers else None
        self._live += 1
        if idle is not None:
            await self._drop(idle)

    def _idle(self) -> LoadedProgram | None:
        """Not in use, and nobody is about to use it."""
        for item in self._programs.values():
            if item.users == 0 and not item.lock.locked() and item.worker is not None:
                return item
        return None

    async def _wait(self, condition: Any, what: str) -> None:
        try:
            async with asyncio.timeout(self.options.wait_timeout_s), self._room:
                await self._room.wait_for(condition)
        except TimeoutError:
            limit = f"no room in the sandbox for {self.options.wait_timeout_s:g} s"
            raise SandboxError(f"{limit}: {what}; raise sandbox.options.workers or .plays") from None

    async def _drop(self, loaded: LoadedProgram) -> None:
        """Kill the program's worker if it has one; its place is free when this returns."""
        worker, loaded.worker = loaded.worker, None
        if worker is None:
            return
        self._programs.pop(id(loaded), None)
        try:
            await worker.kill()
        finally:
            self._live -= 1
            async with self._room:
                self._room.notify_all()

    def _give_back(self, uid: int) -> None:
        if self._users is not None:
            self._users.give_back(uid)


class ProcessSandbox(PooledSandbox):
    """The ``process`` backend: needs nothing but Linux."""

    name = "process"


class BubblewrapSandbox(PooledSandbox):
    """The ``bubblewrap`` backend: no network and a file system of its own on top of what ``process`` does."""

    name = "bubblewrap"

    async def start(self) -> None:
        """Raises :class:`SandboxUnavailable`, saying what to install, where bubblewrap does not work."""
        missing = await bubblewrap.probe(Layout.here(self.options.packages))
        if missing is not None:
            raise SandboxUnavailable(missing)
        await super().start()

    def _wrapper(self, layout: Layout) -> list[str]:
        return bubblewrap.wrapper(layout)


class AutoSandbox(PooledSandbox):
    """``bubblewrap`` where it really works, else ``process``; ``name`` and ``reason`` say which and why, after ``start``."""

    name = "auto"
    reason = ""

    async def start(self) -> None:
        missing = await bubblewrap.probe(Layout.here(self.options.packages))
        if missing is None:
            self.name, self.reason = "bubblewrap", "bubblewrap works on this machine"
        else:
            self.name, self.reason = "process", missing
            _log.warning("sandbox_without_bubblewrap", backend=self.name, reason=missing)
        await super().start()

    def _wrapper(self, layout: Layout) -> list[str]:
        return bubblewrap.wrapper(layout) if self.name == "bubblewrap" else []
