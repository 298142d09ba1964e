"""Plays, rounds and regrets in numbers. Flat names, ``part/name``; what cannot be said is left out, never 0."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from spade_agentic.hooks.kinds import RewardInput
from spade_agentic.hooks.records import Arm, Draft, Environment, ParseOutcome, Play, Regret, Role, StopReason

from .rounds import Round

__all__ = ["LEARNABLE", "play_metrics", "regret_metrics", "round_metrics", "staleness_metrics"]

LEARNABLE = (0.2, 0.8)
"""An environment is learnable while its win rate lies in here (paper, section 5)."""


def play_metrics(plays: Sequence[Play]) -> dict[str, float]:
    """Per arm: how many plays, how they ended and what they were worth. Void plays are counted and left out of the means."""
    metrics: dict[str, float] = {}
    for arm in Arm:
        mine = [play for play in plays if play.arm is arm]
        if mine:
            metrics |= {f"plays/{arm.value}/{name}": value for name, value in _of_arm(mine).items()}
    return metrics


def _of_arm(plays: Sequence[Play]) -> dict[str, float]:
    alive = [play for play in plays if not play.void]
    metrics: dict[str, float] = {"count": len(plays), "void": len(plays) - len(alive)}
    if not alive:
        return metrics
    outcomes = Counter(turn.outcome for play in alive for turn in play.turns)
    stops = Counter(play.stop for play in alive)
    return metrics | {
        "success": _mean(play.won for play in alive),
        "return": _mean(play.reward for play in alive),
        "turns": _mean(len(play.turns) for play in alive),
        "sampled_tokens": _mean(play.trajectory.sampled_tokens for play in alive),
        "malformed_share": outcomes[ParseOutcome.MALFORMED] / max(1, sum(outcomes.values())),
        "segments": _mean(len(play.trajectory.segments) for play in alive),
        **{
            f"stop/{reason.value}": stops[reason] / len(alive)
            for reason in StopReason
            if reason not in (StopReason.ENVIRONMENT_FAULT, StopReason.ABORTED)
        },
    }


def staleness_metrics(version: int, plays: Iterable[Play], drafts: Iterable[Draft]) -> dict[str, float]:
    """Per role, how many updates lie between the weights that sampled a token and ``version``, which trains on it.

    Over the sampled tokens of the plain plays that count and of the drafts that are due. A role without tokens is left out.
    """
    metrics: dict[str, float] = {}
    consumed = [play.trajectory for play in plays if play.arm is Arm.PLAIN and not play.void]
    due = [draft.trajectory for draft in drafts if draft.trajectory is not None]
    for role, trajectories in ((Role.AGENT, consumed), (Role.DESIGNER, due)):
        ages = Counter(
            version - sampled_by
            for trajectory in trajectories for segment in trajectory.segments
            for sampled_by, mine in zip(segment.versions, segment.mask, strict=True) if mine
        )  # fmt: skip
        if ages:
            mean = math.fsum(age * count for age, count in ages.items()) / ages.total()
            metrics |= {f"{role.value}/staleness_mean": mean, f"{role.value}/staleness_max": max(ages)}
    return metrics


def round_metrics(made: Round, kept: Sequence[Environment]) -> dict[str, float]:
    """What one regeneration made; ``kept`` are the environments that stay because their slot was not filled."""
    reasons = Counter(f"{d.refusal.gate}:{d.refusal.code}" for d in made.refused if d.refusal is not None)
    return {
        "round/index": made.index,
        "round/drafts": len(made.drafts),
        "round/admitted": len(made.environments),
        "round/refused": len(made.refused),
        "round/admitted_share": len(made.environments) / max(1, len(made.drafts)),
        "round/kept": len(kept),
        "round/without_hint": made.without_hint,
        "round/draft_tokens": _mean(d.trajectory.sampled_tokens for d in made.drafts if d.trajectory is not None),
        **{f"refused/{reason}": count for reason, count in sorted(reasons.items())},
    }


def regret_metrics(regrets: Mapping[str, Regret], inputs: Sequence[RewardInput]) -> dict[str, float]:
    """The interval that ended: unfloored regret over its environments, and how many of them were learnable."""
    metrics: dict[str, float] = {
        "interval/environments": len(inputs),
        "interval/with_regret": len(regrets),
        "interval/faulty": sum(item.history.faults > 0 for item in inputs),
    }
    rates = [item.win_rate for item in inputs if item.win_rate is not None]
    if rates:
        metrics["interval/win_rate"] = _mean(rates)
        metrics["interval/learnable_share"] = _mean(LEARNABLE[0] <= rate <= LEARNABLE[1] for rate in rates)
    means = [regret.mean for regret in regrets.values()]
    if means:
        metrics["regret/mean"] = _mean(means)
        metrics["regret/hinted_mean"] = _mean(r.hinted_mean for r in regrets.values())
        metrics["regret/plain_mean"] = _mean(r.plain_mean for r in regrets.values())
        metrics["regret/pairs"] = _mean(r.pairs for r in regrets.values())
        metrics["regret/positive_share"] = _mean(mean > 0 for mean in means)
    if len(means) > 1:
        # Over environments: their difference from each other is the larger part of the uncertainty of the mean.
        squares = math.fsum((mean - metrics["regret/mean"]) ** 2 for mean in means)
        metrics["regret/stderr"] = math.sqrt(squares / (len(means) - 1) / len(means))
    return metrics


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else 0.0
