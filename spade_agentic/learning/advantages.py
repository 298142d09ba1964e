"""Advantages, by explicit keys: one rule per role, pure functions of numbers.

Results are in the order of the input and do not depend on it otherwise. ``None`` means no training signal: leave the
sample out of the batch, so that it leaves the loss's normaliser too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["DesignerAdvantage", "DesignerSample", "agent_advantages", "designer_advantages", "designer_weight"]

AGENT_EPS = 1e-8
"""Added to a group's standard deviation (paper, appendix B)."""

_NO_VARIANCE = 1e-9


def agent_advantages(rewards: Sequence[float], keys: Sequence[Hashable]) -> list[float | None]:
    """``(R - mean) / (std + 1e-8)`` within each group of equal keys; population standard deviation.

    The key of a play is ``(environment, instance seed)``, or ``(environment,)`` in the paper's preset. A group of one play,
    or whose returns are all equal, says nothing about which play was better: all of it gets ``None``.

    Raises ``ValueError`` where a reward is not finite or the lengths differ.
    """
    _require_finite(rewards)
    result: list[float | None] = [None] * len(rewards)
    for members in _groups(keys, len(rewards)).values():
        values = [rewards[i] for i in members]
        if max(values) - min(values) <= _NO_VARIANCE:
            continue
        mean = _mean(values)
        std = math.sqrt(_mean([(v - mean) ** 2 for v in values]))
        for i in members:
            result[i] = (rewards[i] - mean) / (std + AGENT_EPS)
    return result


@dataclass(frozen=True, slots=True)
class DesignerSample:
    """One draft. ``reward`` is ``None`` for a refused draft, and for an admitted one that the reward says nothing about.

    ``tokens`` counts its sampled tokens. ``skill`` and ``round_index`` are the key of its baseline.
    """

    skill: str
    round_index: int
    reward: float | None
    refused: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class DesignerAdvantage:
    """``advantage`` and ``weight`` go into the draft's sequences; ``weight`` is to be multiplied by the role's weight.

    ``baseline`` names what the reward was compared with: ``skill``, ``round``, ``running``, ``zero``, or ``refused``.
    """

    advantage: float
    weight: float
    baseline: str


def designer_advantages(
    samples: Sequence[DesignerSample], *, refused_advantage: float = -1.0, running: Mapping[str, float] | None = None
) -> list[DesignerAdvantage | None]:
    """Centred, never standardised, advantages of drafts; pass whole rounds.

    An admitted draft is compared with the mean of the admitted drafts of its skill and round. Where it is the only one,
    its own mean would cancel its reward for ever, so it is compared with others: the mean of the round's other admitted
    drafts; in a round with no other, the skill's mean over earlier rounds, from ``running``; without that, with 0, the
    regret of an environment that has nothing to teach. None of these contains the draft itself, so its advantage is
    never zero by construction, and as none depends on the draft's tokens, the gradient stays unbiased.

    A refused draft has the advantage ``refused_advantage``, enters no baseline, and is weighted down so that all refused
    drafts of a round weigh no more than its admitted ones, both in sampled tokens times absolute advantage (what the
    per-token loss adds up). A round in which nothing was admitted has only its refusals to learn from: together they weigh
    as much as one of them.

    Raises ``ValueError`` where a number is not finite, ``refused_advantage`` is not negative, a draft has no tokens, or a
    refused draft has a reward.
    """
    running = dict(running or {})
    _require_finite([refused_advantage, *running.values()])
    if not refused_advantage < 0:
        raise ValueError(f"refused_advantage must be negative, not {refused_advantage}")
    for sample in samples:
        if sample.tokens <= 0 or (sample.refused and sample.reward is not None):
            raise ValueError(f"not a possible draft: {sample}")
    _require_finite([s.reward for s in samples if s.reward is not None])
    result: list[DesignerAdvantage | None] = [None] * len(samples)
    for members in _groups([s.round_index for s in samples], len(samples)).values():
        rewarded = {i: r for i in members if (r := samples[i].reward) is not None}
        refused = [i for i in members if samples[i].refused]
        for i, reward in rewarded.items():
            baseline, name = _baseline(i, samples, rewarded, running)
            result[i] = DesignerAdvantage(reward - baseline, 1.0, name)
        if refused:
            scale = _refusal_scale(samples, result, list(rewarded), refused, refused_advantage)
            for i in refused:
                result[i] = DesignerAdvantage(refused_advantage, scale, "refused")
    return result


def designer_weight(n_agent: int, n_designer: int, interval: int, cap: float) -> float:
    """The designer's loss weight, ``min(n_agent / n_designer * interval, cap)`` (paper, appendix B).

    ``n_agent`` and ``n_designer`` count *sampled tokens* that are trained in this batch, because the loss is a mean over
    tokens: the designer, trained once in ``interval`` steps, then weighs as much as the agent over the interval. Where
    no agent group has a signal (``n_agent`` 0) the mean runs over designer tokens alone and the weight is
    ``min(interval, cap)``, not 0: a solved pool is when the designer must go on learning. Without designer tokens: 0.
    """
    if n_agent < 0 or n_designer < 0 or interval < 1 or not (math.isfinite(cap) and cap > 0):
        raise ValueError(f"not possible: {n_agent=} {n_designer=} {interval=} {cap=}")
    if n_designer == 0:
        return 0.0
    ratio = n_agent / n_designer if n_agent else 1.0
    return min(ratio * interval, cap)


# --- inside ----------------------------------------------------------------------------------------------------------


def _baseline(
    i: int, samples: Sequence[DesignerSample], rewarded: Mapping[int, float], running: Mapping[str, float]
) -> tuple[float, str]:
    skill = samples[i].skill
    same_skill = [reward for j, reward in rewarded.items() if samples[j].skill == skill]
    if len(same_skill) > 1:
        return _mean(same_skill), "skill"
    others = [reward for j, reward in rewarded.items() if j != i]
    if others:
        return _mean(others), "round"
    if skill in running:
        return running[skill], "running"
    return 0.0, "zero"


def _refusal_scale(
    samples: Sequence[DesignerSample], result: Sequence[DesignerAdvantage | None], rewarded: Sequence[int],
    refused: Sequence[int], refused_advantage: float,
) -> float:
    """What the weights of a round's refused drafts must be multiplied by."""
    if not rewarded:
        return 1.0 / len(refused)
    bound = math.fsum(samples[i].tokens * abs(a.advantage) for i in rewarded if (a := result[i]) is not None)
    mass = math.fsum(samples[i].tokens * abs(refused_advantage) for i in refused)
    return min(1.0, bound / mass)


def _groups(keys: Sequence[Hashable], n: int) -> dict[Hashable, list[int]]:
    if len(keys) != n:
        raise ValueError(f"{n} rewards but {len(keys)} keys")
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        groups[key].append(i)
    return groups


def _mean(values: Sequence[float]) -> float:
    """Exactly rounded sum, so that the order of the plays does not show in the last bit."""
    return math.fsum(values) / len(values)


def _require_finite(values: Sequence[float]) -> None:
    for value in values:
        if not math.isfinite(value):
            raise ValueError(f"a reward or baseline is not finite: {value}")
