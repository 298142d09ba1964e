"""Success on a fixed list of instances, with intervals: sampled as in training, greedy, and with the hint.

The list is made once (by a plugin, such as ``heldout``) and is the same at every step and in every run, so that before and
after are compared instance by instance. The plays of one instance resemble each other; the intervals therefore take instances,
not plays, as what was sampled (:func:`~spade_agentic.evals.stats.clustered_wilson`).

Instances of domains that no run is trained in are a second list. They are played in the same way, after the first list, and
answered under names of their own: no rate is ever taken over both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spade_agentic.errors import SandboxError
from spade_agentic.hooks.records import Arm, Play, Program, Sampling

from .protocol import EvalInstance, EvalRunner
from .stats import Interval, clustered_wilson, paired_difference

__all__ = ["RATES", "RESERVED", "RESERVED_RATES", "Counts", "HeldOutEvaluator", "gain", "unit_key"]

RATES = ("sampled", "greedy", "hinted")
"""The rates of a held-out evaluation, in the order in which they are shown."""
RESERVED = "reserved"
"""What the names of the reserved domains' rates begin with."""
RESERVED_RATES = tuple(f"{RESERVED}/{rate}" for rate in RATES)
"""The same of the domains that are reserved for evaluation."""

Counts = dict[str, tuple[int, int]]
"""Wins and plays of every instance."""


def unit_key(program_id: str, seed: int) -> str:
    """How an instance is called in the stored result."""
    return f"{program_id}:{seed}"


class HeldOutEvaluator:
    """Plays ``instances`` and answers with success rates.

    ``repeats`` sampled plays and ``hinted_repeats`` hinted ones (0: the hinted arm is not played) of each instance, and one
    greedy play. ``group_of`` names the part that a program belongs to (its domain); each part's rates are metrics too.
    ``kept`` says why a program that is not measured itself is kept for evaluation all the same, or ``None``.
    ``reserved_instances`` are those of reserved domains, as many plays of each, in rates of their own.

    The answer of :meth:`evaluate`, for a rate ``r`` of :data:`RATES` and, where there are reserved instances, also of
    :data:`RESERVED_RATES`::

        <name>/r, <name>/r_low, <name>/r_high    success and its 95 % interval
        <name>/r/<group>                         success in one group
        <name>/plays, <name>/void                plays that count, and plays that an environment's fault made void
        <name>/reserved/plays, ...               the same of the reserved instances
        instances/r                              {"<program_id>:<seed>": [wins, plays]}, for paired comparisons
    """

    def __init__(
        self,
        instances: Sequence[EvalInstance],
        *,
        reserved_instances: Sequence[EvalInstance] = (),
        repeats: int,
        hinted_repeats: int,
        group_of: Callable[[Program], str] = lambda program: "",
        kept: Callable[[Program], str | None] = lambda program: None,
        name: str = "heldout",
    ) -> None:
        assert instances, "an evaluation needs instances"
        assert repeats > 0, "an evaluation needs plays"
        self.instances = tuple(instances)
        self.reserved_instances = tuple(reserved_instances)
        self.name = name
        self._repeats, self._hinted_repeats = repeats, hinted_repeats
        self._kept = kept
        listed = (*self.instances, *self.reserved_instances)
        self._measured = {program.canonical_hash for program, _ in listed}
        self._groups = {program.program_id: group_of(program) for program, _ in listed}
        keys = {unit_key(program.program_id, seed) for program, seed in listed}
        assert len(keys) == len(listed), "an instance is listed twice"

    def reserved(self, program: Program) -> str | None:
        """Why ``program`` must not be trained on (:class:`~spade_agentic.hooks.kinds.Reserving`)."""
        if program.canonical_hash in self._measured:
            return f"this world is one that {self.name} measures"
        return self._kept(program)

    async def evaluate(self, runner: EvalRunner, *, step: int) -> dict[str, Any]:
        """Play all of it with the weights that are published now. ``step`` changes nothing about the plays.

        Raises :class:`~spade_agentic.errors.SandboxError` where every play of an arm is void.
        """
        result = await self._measure(runner, self.instances, "")
        if self.reserved_instances:
            result |= await self._measure(runner, self.reserved_instances, f"{RESERVED}/")
        return result

    async def _measure(self, runner: EvalRunner, instances: Sequence[EvalInstance], part: str) -> dict[str, Any]:
        """All rates of one list; ``part`` (empty, or ``reserved/``) begins their names."""
        arms: list[tuple[str, int, Arm, Sampling]] = [
            ("sampled", self._repeats, Arm.PLAIN, runner.sampling),
            ("greedy", 1, Arm.PLAIN, replace(runner.sampling, temperature=0.0)),
            ("hinted", self._hinted_repeats, Arm.HINTED, runner.sampling),
        ]
        result: dict[str, Any] = {}
        plays_in_all = void = 0
        for arm_rate, repeats, arm, sampling in arms:
            if repeats == 0:
                continue
            rate = f"{part}{arm_rate}"
            purpose = f"{self.name}-{rate.replace('/', '-')}"
            plays = await runner.play(instances, repeats, arm, sampling, purpose=purpose)
            assert len(plays) == len(instances) * repeats, "the runner lost plays"
            counts = _counts(plays)
            if not counts:
                raise SandboxError(f"every one of {len(plays)} {rate} plays of {self.name} is void: {plays[0].fault}")
            result |= self._rates(rate, counts)
            counted = sum(trials for _, trials in counts.values())
            plays_in_all, void = plays_in_all + counted, void + len(plays) - counted
        return {**result, f"{self.name}/{part}plays": plays_in_all, f"{self.name}/{part}void": void}

    def _rates(self, rate: str, counts: Counts) -> dict[str, Any]:
        key = f"{self.name}/{rate}"
        interval = clustered_wilson(counts)
        rates: dict[str, Any] = {key: interval.value, f"{key}_low": interval.low, f"{key}_high": interval.high}
        groups: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for unit, count in counts.items():
            groups[self._groups[unit.partition(":")[0]]].append(count)
        if len(groups) > 1:
            rates |= {f"{key}/{group}": _rate(groups[group]) for group in sorted(groups)}
        return {**rates, f"instances/{rate}": {unit: list(count) for unit, count in sorted(counts.items())}}


def gain(before: Mapping[str, Sequence[int]], after: Mapping[str, Sequence[int]]) -> Interval | None:
    """After minus before, paired over the instances that both measured; ``None`` where there is none.

    Both map an instance to its wins and plays, as stored under ``instances/<rate>``.
    """
    first, last = ({unit: wins / plays for unit, (wins, plays) in counts.items()} for counts in (before, after))
    return paired_difference(first, last) if first.keys() & last.keys() else None


def _counts(plays: Iterable[Play]) -> Counts:
    counts: Counts = {}
    for play in plays:
        if not play.void:
            unit = unit_key(play.env_id, play.seed)
            wins, trials = counts.get(unit, (0, 0))
            counts[unit] = (wins + play.won, trials + 1)
    return counts


def _rate(counts: Sequence[tuple[int, int]]) -> float:
    return sum(wins for wins, _ in counts) / sum(trials for _, trials in counts)
