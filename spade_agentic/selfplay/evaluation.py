"""What an evaluator plays with: the run's own rollout path, and nothing of what is played is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spade_agentic.errors import EnvironmentFault
from spade_agentic.evals.protocol import EvalInstance
from spade_agentic.hooks.records import Arm, Environment, Play, Program, Sampling
from spade_agentic.rollout.runner import PlayWatch, RolloutRunner, pair_requests

from .pool import Pool
from .rounds import RoundMaker

__all__ = ["PROGRAMS_AT_ONCE", "EvaluationRunner"]

PROGRAMS_AT_ONCE = 24
"""Programs loaded side by side, each in a worker of its own."""

DEFAULT_TURNS = 16
"""Turns of a program whose manifest names none (:attr:`spade_agentic.envs.contract.ToolEnv.max_turns`)."""


@dataclass(slots=True)
class EvaluationRunner:
    """The :class:`~spade_agentic.evals.protocol.EvalRunner` of one evaluation, of the weights of ``step``.

    Plays are neither recorded nor counted, and no state of the run changes. ``pool`` is what stays loaded afterwards;
    ``watch`` may look on.
    """

    runner: RolloutRunner
    rounds: RoundMaker
    pool: Pool
    sampling: Sampling
    step: int
    watch: PlayWatch | None = None
    _calls: int = field(default=0)

    async def play(
        self, instances: Sequence[EvalInstance], repeats: int, arm: Arm, sampling: Sampling, *, purpose: str
    ) -> list[Play]:
        """See :meth:`spade_agentic.evals.protocol.EvalRunner.play`."""
        programs = {program.program_id: program for program, _ in instances}
        seeds: dict[str, list[int]] = {name: [] for name in programs}
        for program, seed in instances:
            seeds[program.program_id].append(seed)
        names = list(programs)
        plays: list[Play] = []
        for first in range(0, len(names), PROGRAMS_AT_ONCE):
            some = [(programs[name], seeds[name]) for name in names[first : first + PROGRAMS_AT_ONCE]]
            plays += await self._play(some, repeats, arm, sampling, purpose)
        return plays

    async def _play(
        self, programs: Sequence[tuple[Program, Sequence[int]]], repeats: int, arm: Arm, sampling: Sampling, purpose: str
    ) -> list[Play]:
        self._calls += 1
        name = f"e{self.step}n{self._calls}-{purpose}"
        environments = [
            Environment(p.program_id, p, round_index=-1, slot=-1, draft_id="", max_turns=DEFAULT_TURNS) for p, _ in programs
        ]
        try:
            await self.runner.shelf.load(environments)
            for environment in environments:
                loaded = self.runner.shelf.get(environment)
                if not isinstance(loaded, EnvironmentFault):
                    environment.max_turns = int(loaded.manifest.get("max_turns") or DEFAULT_TURNS)
            if arm is Arm.HINTED:
                hints = await self.rounds.write_hints(f"{name}-hint", [(p.program_id, p) for p, _ in programs])
                for environment, hint in zip(environments, hints, strict=True):
                    environment.hint = hint
            units = [
                pair_requests(environment, seed, repeat, arms=[arm], label=purpose)
                for environment, (_, seeds) in zip(environments, programs, strict=True)
                for seed in seeds
                for repeat in range(repeats)
            ]
            return [play for [play] in await self.runner.play(name, units, sampling, watch=self.watch)]
        finally:
            await self.runner.shelf.keep_only(self.pool.environments)
