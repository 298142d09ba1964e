"""Plays for an evaluator, without a model: their outcome comes from a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spade_agentic.evals.protocol import EvalInstance
from spade_agentic.hooks.records import Arm, Play, Program, Role, Sampling, StopReason, Trajectory

__all__ = ["EvalRequest", "ScriptedRunner"]


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """One call of :meth:`ScriptedRunner.play`."""

    instances: tuple[EvalInstance, ...]
    repeats: int
    arm: Arm
    sampling: Sampling
    purpose: str


class ScriptedRunner:
    """An :class:`~spade_agentic.evals.protocol.EvalRunner`. ``outcome(program, seed, repeat, arm)`` gives a play's return.

    A return of 1 is a win; ``None`` is a play that the environment's fault made void. ``requests`` keeps what was asked for.
    """

    def __init__(
        self, outcome: Callable[[Program, int, int, Arm], float | None] | None = None, *, sampling: Sampling | None = None
    ) -> None:
        self._outcome = outcome or (lambda program, seed, repeat, arm: float((seed + repeat) % 2))
        self._sampling = sampling or Sampling()
        self.requests: list[EvalRequest] = []

    @property
    def sampling(self) -> Sampling:
        return self._sampling

    async def play(
        self, instances: Sequence[EvalInstance], repeats: int, arm: Arm, sampling: Sampling, *, purpose: str
    ) -> list[Play]:
        self.requests.append(EvalRequest(tuple(instances), repeats, arm, sampling, purpose))
        return [
            self._one(program, seed, repeat, arm, f"{purpose}-{program.program_id}-{seed}-{repeat}")
            for program, seed in instances
            for repeat in range(repeats)
        ]

    def _one(self, program: Program, seed: int, repeat: int, arm: Arm, play_id: str) -> Play:
        value = self._outcome(program, seed, repeat, arm)
        stop = StopReason.ENVIRONMENT_FAULT if value is None else StopReason.ANSWERED
        return Play(
            play_id, program.program_id, seed, repeat, arm, Trajectory(Role.AGENT), reward=value or 0.0,
            won=value is not None and value >= 1.0, stop=stop, fault="crash: scripted" if value is None else None,
        )
