"""The pool: what a run uses as its sandbox. It owns the spawner, and knows nothing of any operating system."""

from __future__ import annotations

import asyncio
import collections
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from spade_agentic.errors import SandboxError, SandboxUnavailable
from spade_agentic.hooks.records import Program

from .channel import Channel
from .layout import BASE_PACKAGES, find_packages
from .options import SandboxOptions
from .owners import Owner, UserPool, reap_orphans
from .wire import ProtocolError
from .worker import Worker

__all__ = ["HASH_SEEDS", "WorkerSandbox"]

HASH_SEEDS = (0, 1)
"""Two zygotes: a second copy of a program is loaded under another hash seed than the first."""

log = structlog.get_logger(__name__)


class WorkerSandbox:
    """A :class:`~spade_agentic.hooks.kinds.Sandbox` of killable worker processes.

    ``wrapper`` is a command line that the zygotes run under (bubblewrap's), with ``{folder}`` for the owner's state folder.
    ``found`` says, after :meth:`start`, what this machine lets a worker be confined with.
    """

    def __init__(self, name: str, options: SandboxOptions, *, run: str = "run", wrapper: Sequence[str] = ()) -> None:
        self.name, self.options = name, options
        self.found: dict[str, Any] = {}
        self._run, self._wrapper = run, list(wrapper)
        self._owner: Owner | None = None
        self._users: UserPool | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Channel | None = None
        self._numbers = itertools.count(1)
        self._workers: set[Worker] = set()
        self._copies: collections.Counter[str] = collections.Counter()

    async def start(self) -> None:
        """Remove what dead runs left, start the spawner and wait until it can serve. Raises SandboxUnavailable."""
        reaped = reap_orphans()
        if reaped:
            log.warning("sandbox_reaped", owners=reaped)
        self._room = asyncio.Semaphore(self.options.workers)
        self._turnstile = asyncio.Semaphore(self.options.concurrency)
        self._sending = asyncio.Lock()
        self._owner = owner = Owner.claim(self._run)
        self._users = UserPool() if os.geteuid() == 0 else None
        ours, theirs = socket.socketpair()
        layout = json.dumps({"path": [], "packages": self._packages()})
        boot = str(Path(__file__).with_name("boot.py"))
        command = [sys.executable, "-s", "-S", "-P", "-B", boot, "spawner", owner.label, str(theirs.fileno()), layout]
        self._process = subprocess.Popen(
            command, env={"LC_ALL": "C.UTF-8"}, cwd="/", pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=(owner.folder / "stderr").open("wb"),
        )  # fmt: skip
        theirs.close()
        self._control = Channel(ours)
        try:
            async with asyncio.timeout(self.options.start_timeout_s):
                report = await self._control.ask(self._setup())
        except (TimeoutError, ProtocolError) as error:
            report = {"error": f"no answer within {self.options.start_timeout_s} s ({error})"}
        if report is None or "error" in report:
            said = (owner.folder / "stderr").read_text(errors="replace").strip()[-1500:]
            await self.stop()
            raise SandboxUnavailable(f"sandbox {self.name!r} does not start here: {(report or {}).get('error', '')} {said}")
        self.found = report
        log.info("sandbox_started", backend=self.name, **report)

    def _packages(self) -> dict[str, str]:
        return find_packages([*BASE_PACKAGES, *self.options.packages, *(name.split(".")[0] for name in self.options.preload)])

    def _setup(self) -> dict[str, Any]:
        assert self._owner is not None
        wanted = {"user": True, "pidns": True, "landlock": True, "probe_uid": self._users.probe if self._users else 0}
        return {
            "host": os.getpid(), "die_with_parent": True, "hash_seeds": list(HASH_SEEDS),
            "wrapper": [part.replace("{folder}", str(self._owner.folder)) for part in self._wrapper],
            "zygote": {"preload": list(self.options.preload), "wanted": wanted},
        }

    async def load(self, program: Program) -> Worker:
        """Load ``program`` in a worker of its own.

        While a copy of it is loaded, the next one is loaded under another hash seed. Raises EnvironmentFault where the
        program is at fault, and SandboxError where no worker can be had.
        """
        assert self._control is not None, "the sandbox is not started"
        try:
            async with asyncio.timeout(self.options.wait_timeout_s):
                await self._room.acquire()
        except TimeoutError:
            raise SandboxError(
                f"all {self.options.workers} workers were taken for {self.options.wait_timeout_s} s; raise the sandbox's"
                " option workers, or load fewer programs at once"
            ) from None
        variant = self._copies[program.program_id] % len(HASH_SEEDS)
        self._copies[program.program_id] += 1
        try:
            worker = await self._start_worker(program, variant)
        except BaseException:
            self._forget(program, None, None)
            raise
        try:
            await worker.load(program)
        except BaseException:
            await worker.close()
            raise
        return worker

    async def _start_worker(self, program: Program, variant: int) -> Worker:
        assert self._control is not None and self._owner is not None
        uid = self._users.take() if self._users is not None and self.found["user"] else None
        work, theirs = Channel.pair()
        leash, thats = Channel.pair()
        worker = Worker(work, leash, self.options, self._turnstile, lambda: self._forget(program, worker, uid))
        request = {
            "variant": variant, "limits": self.options.guest_limits(), "uid": uid or 0,
            "folder": str(self._owner.folder / f"worker-{next(self._numbers)}"),
        }
        self._workers.add(worker)
        try:
            async with self._sending:
                await self._control.send_with_fds(request, [theirs, thats])
        except OSError as error:
            work.close()
            leash.close()
            raise SandboxError(f"the spawner of sandbox {self.name!r} is gone: {error}") from error
        return worker

    def _forget(self, program: Program, worker: Worker | None, uid: int | None) -> None:
        """Give back what a worker had."""
        if worker is not None:
            self._workers.discard(worker)
        if uid is not None and self._users is not None:
            self._users.give_back(uid)
        self._copies[program.program_id] -= 1
        if not self._copies[program.program_id]:
            del self._copies[program.program_id]
        self._room.release()

    async def stop(self) -> None:
        """Kill every worker, zygote and the spawner, and remove the state folder."""
        await asyncio.gather(*(worker.close() for worker in list(self._workers)))
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, 10.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                await asyncio.to_thread(self._process.wait)
            self._process = None
        if self._owner is not None:
            self._owner.release()
            self._owner = None
