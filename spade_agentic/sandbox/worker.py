"""The host's handles: a worker (one loaded program) and a play (one fork of it)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from spade_agentic.errors import EnvironmentFault, EnvironmentTimeout, SandboxError
from spade_agentic.hooks.kinds import StepObservation
from spade_agentic.hooks.records import Program

from .channel import Channel
from .checks import checked_manifest, checked_probe, checked_reset, checked_step
from .options import SandboxOptions
from .wire import ProtocolError

__all__ = ["Play", "Start", "Worker"]

Start = Callable[[int, int], Awaitable[None]]
"""Has a supervisor started on two descriptors, (work, leash); takes them over."""

_GRACE_S = 1.0
_GONE_S = 10.0
_CODES = {"threads": "extra_thread", "children": "extra_child", "descriptors": "extra_descriptor", "maps": "shared_map"}


class Worker:
    """One program, loaded in a process tree of its own.

    ``leash`` goes to the supervisor, which kills the tree when it is asked to, or when the leash closes; ``work`` to the
    runner, which shares its interpreter with the program and is not believed.
    """

    def __init__(self, program: Program, options: SandboxOptions, gate: asyncio.Semaphore) -> None:
        self.program = program
        self.options = options
        self.gate = gate
        self.plays: dict[int, Play] = {}
        self.manifest: Mapping[str, Any] = {}
        self.supervisor_pid = 0
        self.on_gone: Callable[[], None] | None = None
        self._numbers = 0
        self._why: EnvironmentFault | None = None
        self._farewell: dict[str, Any] | None = None
        self._answers: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._stopping = asyncio.Lock()
        self._gone = asyncio.Event()

    @property
    def alive(self) -> bool:
        return not self._gone.is_set() and self._why is None

    async def start(self, start: Start) -> None:
        """Start the tree and load the program. Raises :class:`EnvironmentFault` for what the program does wrong."""
        self._work, work = Channel.pair()
        self._leash, leash = Channel.pair()
        await start(work, leash)
        self._listener = asyncio.create_task(self._listen())
        try:
            async with asyncio.timeout(self.options.start_timeout_s):
                ready = await self._answers.get()
            if ready is None or "ready" not in ready:
                raise SandboxError(f"a worker did not start: {self._farewell or ready}")
            self.supervisor_pid = int(ready["pid"])
            async with self.gate:
                await self._load()
        except TimeoutError as error:
            raise SandboxError("a worker did not start in time") from error
        except BaseException:
            await self.kill()
            raise

    async def _load(self) -> None:
        """Load, check what was said about it, and audit what it left behind."""
        try:
            async with asyncio.timeout(self.options.load_timeout_s):
                answer = await self._work.ask({"op": "load", "source": self.program.source})
        except TimeoutError:
            raise EnvironmentTimeout("loading the program") from None
        except ProtocolError as error:
            raise EnvironmentFault("protocol", f"while loading: {error}") from error
        if answer is None:
            raise await self._end("the program ended its process while it was loaded")
        if "fault" in answer:
            raise EnvironmentFault(str(answer["fault"])[:40], str(answer.get("detail", ""))[:1000])
        self.manifest = checked_manifest(self.program, answer.get("manifest"))
        await self._audit()

    async def _audit(self) -> None:
        """Raise where the tree holds more than it may; the supervisor looks, from outside."""
        found = await self._ask_supervisor({"op": "audit", "plays": len(self.plays)})
        if found is None:
            raise await self._end("the program's process is gone")
        for name, count in found.items():
            if count > 0:
                raise EnvironmentFault(_CODES[name], f"{count} {name} beyond its own after it was loaded")

    async def _ask_supervisor(self, message: dict[str, Any]) -> dict[str, int] | None:
        """What the supervisor found; ``None`` where the tree is gone, or going."""
        try:
            await self._leash.send(message)
            async with asyncio.timeout(_GRACE_S + self.options.step_timeout_s):
                answer = await self._answers.get()
        except OSError as error:
            if not isinstance(error, TimeoutError):
                return None
            raise SandboxError("a worker's supervisor does not answer") from None
        return None if answer is None else answer["audit"]

    async def why_ended(self, what: str) -> EnvironmentFault:
        """Why a play's process ended: with the whole tree, for a reason that its supervisor knows, or by itself."""
        async with self._stopping:
            if self.alive and await self._ask_supervisor({"op": "ping"}) is not None:
                return EnvironmentFault("crash", what)
            return await self._end(what)

    async def _listen(self) -> None:
        """Sort what the supervisor says: answers, and its farewell. The end of the leash is the end of the tree."""
        try:
            while (message := await self._leash.receive()) is not None:
                if "gone" in message or "error" in message:
                    self._farewell = message
                else:
                    self._answers.put_nowait(message)
        except (OSError, ProtocolError) as error:
            self._farewell = {"error": str(error)}
        finally:
            self._gone.set()
            self._answers.put_nowait(None)

    async def _end(self, what: str) -> EnvironmentFault:
        """The fault to raise where the program's processes are gone: why they were ended, if anybody ended them."""
        try:
            async with asyncio.timeout(_GRACE_S):
                await self._gone.wait()
        except TimeoutError:
            return EnvironmentFault("crash", what)
        if self._why is not None:
            return self._why
        said = self._farewell or {}
        if "exceeded" in said:
            code = {"memory": "memory_limit", "processes": "process_limit"}[said["exceeded"]]
            return EnvironmentFault(code, f"the program and its plays used too much: {said['exceeded']}")
        return EnvironmentFault("crash", f"{what} (exit status {said.get('exited', 'unknown')})")

    async def open(self) -> Play:
        """Fork a play."""
        self._numbers += 1
        channel, theirs = Channel.pair()
        play = Play(self, self._numbers, channel)
        self.plays[play.number] = play
        try:
            await self._work.send_with_fds({"op": "play", "play": play.number}, [theirs])
        except OSError:
            fault = await self._end("the program's process is gone")
            await play.close()
            raise fault from None
        return play

    async def stop(self, play: Play) -> None:
        """Kill one play that does not answer; where the runner does not do it, or something is left, kill everything."""
        self.plays.pop(play.number, None)
        async with self._stopping:
            if not self.alive:
                return
            try:
                async with asyncio.timeout(_GRACE_S):
                    answer = await self._work.ask({"op": "stop", "play": play.number})
                if answer != {"stopped": play.number}:
                    raise ProtocolError("a play was not stopped")
                await self._audit()
            except (TimeoutError, ProtocolError, EnvironmentFault, OSError):
                await self.kill(EnvironmentTimeout("another play of this program did not answer, and all were killed"))

    async def kill(self, why: EnvironmentFault | None = None) -> None:
        """Kill the tree and wait until it is gone; whoever still plays is told ``why``."""
        self._why = self._why or why or EnvironmentTimeout("its worker was stopped")
        for play in list(self.plays.values()):
            play.drop()
        self._work.close()
        with suppress(OSError):  # it may be gone already, which the listener hears
            await self._leash.send({"op": "kill"})
        try:
            async with asyncio.timeout(_GONE_S):
                await self._gone.wait()
        except TimeoutError as error:
            raise SandboxError(f"a worker (pid {self.supervisor_pid}) could not be killed") from error
        finally:
            self._listener.cancel()
            self._leash.close()
            report, self.on_gone = self.on_gone, None
            if report is not None:
                report()


class Play:
    """One forked instance. The host counts its calls and checks every answer.

    Every call has a number, which its answer repeats, and the answer that ends a play is followed by one more call. So a
    message that the program wrote by itself is found, at the latest there: it leaves an answer over.
    """

    def __init__(self, worker: Worker, number: int, channel: Channel) -> None:
        self.number = number
        self.on_close: Callable[[], Awaitable[None]] | None = None
        self._worker = worker
        self._channel = channel
        self._steps = 0
        self._calls = 0
        self._running = False
        self._closed = False

    async def reset(self, seed: int) -> StepObservation:
        answer = await self._ask({"op": "reset", "seed": seed}, "reset")
        observation = checked_reset(answer, self._worker.options.max_text_chars)
        self._steps, self._running = 0, True
        return observation

    async def step(self, action: Mapping[str, Any]) -> StepObservation:
        """Raises :class:`RuntimeError` before a reset and after the end: that is the caller's mistake."""
        if not self._running and not self._closed:
            raise RuntimeError("step needs a reset first")
        answer = await self._ask({"op": "step", "action": dict(action)}, "step")
        observation = checked_step(answer, self._worker.options.max_text_chars)
        if observation.terminated or observation.truncated:
            await self._ask({"op": "end"}, "the end of the play")
        self._steps += 1
        used_up = self._steps >= self._worker.manifest["max_turns"]
        if used_up and not observation.terminated and not observation.truncated:
            observation = StepObservation(observation.text, observation.reward, False, True, observation.info)
        self._running = not (observation.terminated or observation.truncated)
        return observation

    async def probe(self) -> Mapping[str, Any]:
        return checked_probe(await self._ask({"op": "probe"}, "probe"))

    async def close(self) -> None:
        """Let the play go; its process ends when its socket closes."""
        if self._closed:
            return
        self.drop()
        self._worker.plays.pop(self.number, None)
        if self.on_close is not None:
            await self.on_close()

    def drop(self) -> None:
        self._closed = True
        self._running = False
        self._channel.close()

    async def _ask(self, message: dict[str, Any], what: str) -> Any:
        if self._closed:
            raise self._worker_fault()
        worker = self._worker
        async with worker.gate:
            if self._closed:
                raise self._worker_fault()
            self._calls += 1
            number = self._calls
            try:
                async with asyncio.timeout(worker.options.step_timeout_s):
                    answer = await self._channel.ask({**message, "n": number}, worker.options.message_kb * 1024)
                if answer is not None and answer.get("n") != number:
                    raise ProtocolError("a message that is no answer to this call")
            except TimeoutError:
                await self._lost()
                raise EnvironmentTimeout(f"{what} took more than {worker.options.step_timeout_s:g} s") from None
            except ProtocolError as error:
                await self._lost()
                raise EnvironmentFault("protocol", f"{what}: {error}") from error
            except OSError:
                answer = None  # closed under our hands; the reason follows
        if answer is None:
            if self._closed:
                raise self._worker_fault()
            raise await worker.why_ended(f"the play's process ended during {what}")
        if "fault" in answer:
            raise EnvironmentFault(str(answer["fault"])[:40], str(answer.get("detail", ""))[:1000])
        return answer.get("is")

    async def _lost(self) -> None:
        """Give up this play: it is killed, and the room that it took is free when this returns."""
        self.drop()
        await self._worker.stop(self)
        if self.on_close is not None:
            await self.on_close()

    def _worker_fault(self) -> EnvironmentFault:
        return self._worker._why or EnvironmentFault("crash", "the play's process is gone")
