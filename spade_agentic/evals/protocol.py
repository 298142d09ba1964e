"""What an evaluation asks of the run that hosts it, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from spade_agentic.hooks.records import Arm, Play, Program, Sampling

__all__ = ["EvalInstance", "EvalRunner"]

EvalInstance = tuple[Program, int]
"""A program and the seed that it is reset with."""


@runtime_checkable
class EvalRunner(Protocol):
    """Plays instances for an evaluation, through the same play function and the same rendering as training.

    ``sampling`` is the agent's sampling in training; an evaluation that wants greedy plays replaces its temperature by 0.
    """

    @property
    def sampling(self) -> Sampling: ...

    async def play(
        self, instances: Sequence[EvalInstance], repeats: int, arm: Arm, sampling: Sampling, *, purpose: str
    ) -> list[Play]:
        """Play every instance ``repeats`` times, with the weights that are published now.

        The same program may come with several seeds; no (program, seed) comes twice. Returns exactly
        ``len(instances) * repeats`` plays in any order; a play that failed is among them, with its stop reason. In each,
        ``env_id`` is the ``program_id`` of its program, ``seed`` and ``repeat`` (from 0) are the ones asked for, ``play_id``
        begins with ``purpose`` and is unique within the call. The turn limit is the program's own. For
        :attr:`Arm.HINTED` the hint is the one that the run's own hint writer gives for the program. Sampling noise is keyed
        by the run's seed, ``purpose``, program, seed and repeat, and not by the step: two evaluations of the same weights
        agree, and a comparison of two steps sees the same noise. The plays enter no batch, no memory and no regret, and
        leave no program loaded that was not loaded before.

        Raises what the play function raises for a failure of ours (:class:`~spade_agentic.errors.EngineError`,
        :class:`~spade_agentic.errors.SandboxError`).
        """
        ...
