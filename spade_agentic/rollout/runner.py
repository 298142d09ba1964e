"""Plays of whole batches: sessions, programs loaded in the sandbox, lockstep and admission put together.

The self-play loop and every evaluation play through this one class, with the same rendering and the same play function.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spade_agentic.errors import EnvironmentFault, SandboxError
from spade_agentic.hooks.kinds import InferenceEngine, Sandbox, SandboxProgram
from spade_agentic.hooks.records import Arm, Environment, Play, Role, Sampling, StopReason, Trajectory

from .episode import PlayKey, PlayStage, play_episode
from .rendering import Rendering
from .scheduler import Admission, Job, Scheduler
from .session import Session, Ticket

__all__ = ["PlayRequest", "PlayWatch", "ProgramShelf", "RolloutRunner", "pair_requests"]


class PlayWatch(Protocol):
    """Is told how plays go, for whoever looks on; nothing that it does may change a play."""

    def plays_expected(self, count: int) -> None: ...
    def play_started(self, play_id: str, env_id: str, arm: Arm) -> None: ...
    def play_entered(self, play_id: str, stage: PlayStage) -> None: ...
    def play_progressed(self, play_id: str) -> None: ...
    def play_finished(self, play: Play) -> None: ...


@dataclass(frozen=True, slots=True)
class PlayRequest:
    """One play to make. ``noise`` keys the sampling noise; both arms of a pair share it, so a hint that says nothing
    changes nothing."""

    environment: Environment
    key: PlayKey
    noise: tuple[str | int, ...]


class ProgramShelf:
    """Programs that are loaded in the sandbox, kept from play to play. A program that does not load is a fault, as data."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._loaded: dict[str, SandboxProgram | EnvironmentFault] = {}

    async def load(self, environments: Iterable[Environment]) -> None:
        """Load what is not there yet, all at once. Raises SandboxError where the sandbox itself fails."""
        wanted = {e.program.program_id: e.program for e in environments}
        missing = [(name, program) for name, program in wanted.items() if name not in self._loaded]
        outcomes = await asyncio.gather(*(self._sandbox.load(p) for _, p in missing), return_exceptions=True)
        failure: BaseException | None = None
        for (name, _), outcome in zip(missing, outcomes, strict=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, EnvironmentFault):
                failure = failure or outcome
            else:
                self._loaded[name] = outcome
        if failure is not None:
            raise failure

    def get(self, environment: Environment) -> SandboxProgram | EnvironmentFault:
        return self._loaded[environment.program.program_id]

    async def keep_only(self, environments: Iterable[Environment]) -> None:
        """Close every program that none of ``environments`` needs."""
        wanted = {e.program.program_id for e in environments}
        closing = [name for name in self._loaded if name not in wanted]
        for name in closing:
            program = self._loaded.pop(name)
            if not isinstance(program, EnvironmentFault):
                await program.close()

    async def close(self) -> None:
        await self.keep_only(())


class RolloutRunner:
    """Holds conversations and plays for one run. Not a record: everything that must survive a kill lives elsewhere."""

    def __init__(
        self,
        *,
        engine: InferenceEngine,
        rendering: Rendering,
        sandbox: Sandbox,
        run_seed: int,
        context_tokens: int,
        slots: int,
        deterministic: bool,
    ) -> None:
        self.scheduler = Scheduler(slots=slots, deterministic=deterministic)
        self.shelf = ProgramShelf(sandbox)
        self.sandbox = sandbox
        self.rendering = rendering
        self.run_seed = run_seed
        self._engine = engine
        self._context_tokens = context_tokens

    def session(
        self, role: Role, sampling: Sampling, *, noise: Sequence[str | int], request_id: str, ticket: Ticket
    ) -> Session:
        """A new conversation whose sampling noise depends on the run's seed and ``noise`` alone."""
        return Session(
            role=role,
            rendering=self.rendering,
            engine=self._engine,
            sampling=sampling,
            noise_key=(self.run_seed, *noise),
            request_id=request_id,
            context_tokens=self._context_tokens,
            ticket=ticket,
        )

    async def play(
        self,
        name: str,
        units: Sequence[Sequence[PlayRequest]],
        sampling: Sampling,
        *,
        admission: Admission | None = None,
        watch: PlayWatch | None = None,
    ) -> list[list[Play]]:
        """Play all ``units`` (what one unit holds starts together), in the order given.

        In deterministic mode a program that misses its deadline again and again stops the step with SandboxError: there
        the clock may not decide anything.
        """
        await self.shelf.load(request.environment for unit in units for request in unit)
        if watch is not None:
            watch.plays_expected(sum(map(len, units)))
        jobs = [[Job(r.key.play_id, self._job(r, sampling, watch)) for r in unit] for unit in units]
        return await self.scheduler.run(name, jobs, admission=admission)

    def _job(
        self, request: PlayRequest, sampling: Sampling, watch: PlayWatch | None
    ) -> Callable[[Ticket], Awaitable[Play]]:
        async def run(ticket: Ticket) -> Play:
            key = request.key
            if watch is not None:
                watch.play_started(key.play_id, request.environment.env_id, key.arm)
            play = await self._play_one(request, sampling, ticket, watch)
            if self.scheduler.deterministic and play.fault and play.fault.startswith("timeout"):
                raise SandboxError(
                    f"environment {request.environment.env_id}: seed {key.seed} missed its deadline every time it was"
                    f" played ({play.fault}); a deterministic run never scores a timeout. Resume on a quieter machine, raise"
                    " the sandbox's deadline, or set run.deterministic to false"
                )
            if watch is not None:
                watch.play_finished(play)
            return play

        return run

    async def _play_one(
        self, request: PlayRequest, sampling: Sampling, ticket: Ticket, watch: PlayWatch | None
    ) -> Play:
        program = self.shelf.get(request.environment)
        key = request.key
        if isinstance(program, EnvironmentFault):
            return Play(
                key.play_id, request.environment.env_id, key.seed, key.repeat, key.arm, Trajectory(Role.AGENT),
                reward=0.0, won=False, stop=StopReason.ENVIRONMENT_FAULT, fault=str(program),
            )
        session = self.session(Role.AGENT, sampling, noise=request.noise, request_id=key.play_id, ticket=ticket)
        told: dict[str, Any] = {}
        if watch is not None:
            told = {
                "on_turn": lambda: watch.play_progressed(key.play_id),
                "on_stage": lambda stage: watch.play_entered(key.play_id, stage),
            }
        return await play_episode(request.environment, program, session, self.rendering, key, **told)


def pair_requests(
    environment: Environment, seed: int, repeat: int, *, arms: Sequence[Arm], label: str
) -> list[PlayRequest]:
    """The plays of one (seed, repeat) of an environment, one for each of ``arms``, on the same noise."""
    return [
        PlayRequest(
            environment,
            PlayKey(f"{label}-{environment.env_id}-{seed}-{repeat}-{arm.value}", seed, repeat, arm),
            (label, environment.env_id, seed, repeat),
        )
        for arm in arms
    ]
