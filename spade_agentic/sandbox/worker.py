"""One loaded program, as the host sees it: a supervisor with its runner, started through the spawner."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from spade_agentic.errors import EnvironmentFault, EnvironmentTimeout, SandboxError
from spade_agentic.hooks.records import Program

from .channel import Channel
from .checks import checked_manifest
from .options import SandboxOptions
from .play import HostPlay
from .wire import ProtocolError

__all__ = ["Worker"]

_GONE_TIMEOUT_S = 10.0
_EXTRAS = {
    "threads": ("extra_thread", "a thread"),
    "children": ("extra_child", "a process"),
    "descriptors": ("extra_descriptor", "an open descriptor"),
    "maps": ("shared_map", "a writable shared map"),
}


class Worker:
    """A :class:`~spade_agentic.hooks.kinds.SandboxProgram`.

    ``work`` leads to the runner, ``leash`` to the supervisor; closing the leash kills everything. ``released`` is called
    once, when the worker is gone. ``turnstile`` bounds the calls into all programs of the sandbox.
    """

    manifest: Mapping[str, Any]

    def __init__(
        self, work: Channel, leash: Channel, options: SandboxOptions, turnstile: asyncio.Semaphore,
        released: Callable[[], None],
    ) -> None:
        self.options, self.turnstile = options, turnstile
        self._work, self._leash = work, leash
        self._released = released
        self._numbers = itertools.count(1)
        self._plays: set[int] = set()
        self._work_lock, self._leash_lock = asyncio.Lock(), asyncio.Lock()
        self._fate: EnvironmentFault | None = None
        self._gone = False

    async def load(self, program: Program) -> None:
        """Load ``program`` and look at what it left behind. Raises EnvironmentFault, or SandboxError before it came to that."""
        await self._ready()
        try:
            async with self.turnstile, asyncio.timeout(self.options.load_timeout_s):
                answer = await self._work.ask({"source": program.source}, self.options.message_kb * 1024 + 64)
        except TimeoutError:
            raise EnvironmentTimeout(f"loading took more than {self.options.load_timeout_s} s") from None
        except ProtocolError as error:
            raise EnvironmentFault("protocol", str(error)) from error
        if answer is None:
            raise await self.why_gone() or EnvironmentFault("crash", "the process ended while it loaded the program")
        if "manifest" not in answer:
            raise EnvironmentFault(str(answer.get("fault", "protocol"))[:40], str(answer.get("detail", ""))[:500])
        self.manifest = checked_manifest(program, answer["manifest"])
        await self._audit()

    async def _ready(self) -> None:
        try:
            async with asyncio.timeout(self.options.start_timeout_s):
                report = await self._leash.receive()
        except TimeoutError:
            raise SandboxError(f"a worker did not start within {self.options.start_timeout_s} s") from None
        if report is None or "ready" not in report:
            detail = "the spawner refused" if report is None else str(report.get("error", report))
            raise SandboxError(f"a worker could not be started: {detail}")

    async def _audit(self) -> None:
        """Refuse what a program has beyond its own thread and its plays, as the supervisor sees it from outside."""
        try:
            async with self._leash_lock, asyncio.timeout(self.options.step_timeout_s):
                report = await self._leash.ask({"op": "audit", "plays": len(self._plays)})
        except TimeoutError:
            raise SandboxError("the supervisor of a worker does not answer") from None
        if report is None or "audit" not in report:
            self._note(report)
            raise self._fate or EnvironmentFault("crash", "the worker ended right after loading")
        for what, (code, name) in _EXTRAS.items():
            if report["audit"][what] > 0:
                raise EnvironmentFault(code, f"the program keeps {name} of its own after it was loaded")

    async def play(self) -> HostPlay:
        """Fork a play. Raises EnvironmentFault where the worker is gone."""
        channel, theirs = Channel.pair()
        number = next(self._numbers)
        try:
            async with self._work_lock:
                await self._work.send_with_fds({"op": "play", "play": number}, [theirs])
        except (OSError, ProtocolError):
            channel.close()
            raise await self.why_gone() or EnvironmentFault("crash", "the worker of the program ended") from None
        self._plays.add(number)
        return HostPlay(self, number, channel)

    async def end_play(self, number: int, *, hung: bool) -> None:
        """Kill one play; after a hang also make sure that nothing of it is left, else kill the worker."""
        self._plays.discard(number)
        if self._gone:
            return
        try:
            async with self._work_lock, asyncio.timeout(self.options.step_timeout_s):
                answer = await self._work.ask({"op": "stop", "play": number})
            if answer != {"stopped": number}:
                raise EnvironmentFault("protocol", "the runner did not stop a play")
            if hung:
                await self._audit()
        except (TimeoutError, OSError, ProtocolError, EnvironmentFault):
            await self.close()

    async def why_gone(self) -> EnvironmentFault | None:
        """Why the worker ended, as its supervisor tells; ``None`` where it has not ended."""
        if self._fate is None and not self._gone:
            with contextlib.suppress(TimeoutError, ProtocolError):
                async with self._leash_lock, asyncio.timeout(1.0):
                    self._note(await self._leash.receive())
        return self._fate

    def _note(self, farewell: Mapping[str, Any] | None) -> None:
        if farewell is None:
            self._fate = EnvironmentFault("crash", "the worker was killed")
        elif "exceeded" in farewell:
            self._fate = EnvironmentFault(str(farewell["exceeded"]), "the program and its plays used more than they may")
        elif "exited" in farewell:
            self._fate = EnvironmentFault("crash", f"the program's process ended with code {farewell['exited']}")

    async def close(self) -> None:
        """Kill everything and wait until the supervisor says that it is gone."""
        if self._gone:
            return
        self._gone = True
        self._work.close()
        try:
            with contextlib.suppress(TimeoutError, ProtocolError, OSError):
                async with asyncio.timeout(_GONE_TIMEOUT_S):
                    await self._leash.send({"op": "kill"})
                    while (answer := await self._leash.receive()) is not None and "gone" not in answer:
                        self._note(answer)
        finally:
            self._leash.close()
            self._released()
