"""Rewards for the designer: hint-regret, learning potential, the released blend, and the plateau alone.

All of them are pure functions of one environment's history (``ema`` also of its skill's average). All of them charge a
fault of the program to the designer, and all of them say nothing (``None``) where too little of the history survived.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from spade_agentic import Arm, DesignerReward, Factory, Options, RewardInput, Skill, hookimpl

__all__ = [
    "Blend",
    "BlendOptions",
    "Ema",
    "EmaOptions",
    "HintRegret",
    "HintRegretOptions",
    "RewardOptions",
    "SolveRate",
    "designer_reward",
    "learning_progress",
    "plateau",
    "variance_bonus",
]

REGRET_SCALE = 0.15
PROGRESS_SCALE = 0.10


def _clip01(value: float) -> float:
    return max(0.0, min(1.0, value))


def plateau(win_rate: float) -> float:
    """1 on [.4, .6], falling linearly to 0 at .15 and .85."""
    if win_rate < 0.4:
        return _clip01((win_rate - 0.15) / 0.25)
    return _clip01((0.85 - win_rate) / 0.25) if win_rate > 0.6 else 1.0


def variance_bonus(variance: float) -> float:
    """``exp(-((variance - .25)^2) / .02)``: highest for returns that are won and lost equally often."""
    return math.exp(-((variance - 0.25) ** 2) / 0.02)


def learning_progress(item: RewardInput) -> float:
    """Mean plain return of the late half of the interval minus that of the early half; 0 with fewer than two plays."""
    returns = [play.reward for play in item.history.plays if play.arm is Arm.PLAIN and not play.void]
    half = len(returns) // 2
    if half == 0:
        return 0.0
    return math.fsum(returns[-half:]) / half - math.fsum(returns[:half]) / half


class RewardOptions(Options):
    """Options that every reward has."""

    fault_penalty: float = Field(
        default=0.5, ge=0.0, description="A program that crashed, timed out or broke the protocol earns minus this."
    )


class HintRegretOptions(RewardOptions):
    floor: bool = Field(default=False, description="Floor the regret at 0, as the paper writes it. Pays for noise.")
    prior_sd: float | None = Field(
        default=None,
        gt=0.0,
        description="Shrink the mean towards 0: times prior_sd^2 / (prior_sd^2 + stderr^2). Null does not shrink.",
    )


class BlendOptions(RewardOptions):
    regret_weight: float = Field(default=0.4, description="Weight of clip(regret / 0.15, 0, 1).")
    plateau_weight: float = Field(default=0.6, description="Weight of the plateau of the win rate.")
    progress_weight: float = Field(
        default=0.0, description="Weight of clip((late half - early half) / 0.10, 0, 1) of the interval's returns."
    )
    centre_weight: float = Field(default=0.0, description="Weight of -((win rate - .5)^2 / .08).")


class EmaOptions(RewardOptions):
    slow_weight: float = Field(
        default=0.15,
        gt=0.0,
        le=1.0,
        description="Weight of the new value in the skill's slow average, from which the distance is taken (release: 0.85).",
    )
    variance_weight: float = Field(default=0.0, description="Weight of exp(-((variance - .25)^2) / .02).")


class HintRegret:
    """Mean return with hint minus without, over paired seeds; unfloored unless asked otherwise."""

    def __init__(self, options: HintRegretOptions) -> None:
        self._options = options

    def reward(self, item: RewardInput) -> float | None:
        if item.history.faults:
            return -self._options.fault_penalty
        regret = item.history.regret
        if regret is None:
            return None
        mean, prior_sd = regret.mean, self._options.prior_sd
        if prior_sd is not None:
            mean *= prior_sd**2 / (prior_sd**2 + regret.stderr**2)
        return max(0.0, mean) if self._options.floor else mean


class SolveRate:
    """The plateau of the win rate alone. Wins are counted, not returns: a constant return of one half wins nothing."""

    def __init__(self, options: RewardOptions) -> None:
        self._options = options

    def reward(self, item: RewardInput) -> float | None:
        if item.history.faults:
            return -self._options.fault_penalty
        return None if item.win_rate is None else plateau(item.win_rate)


class Blend:
    """The released tool-use recipe: regret and plateau, with two further terms whose weight is 0."""

    def __init__(self, options: BlendOptions) -> None:
        self._options = options

    def reward(self, item: RewardInput) -> float | None:
        if item.history.faults:
            return -self._options.fault_penalty
        regret, win_rate = item.history.regret, item.win_rate
        if regret is None or win_rate is None:
            return None
        options = self._options
        return (
            options.regret_weight * _clip01(regret.mean / REGRET_SCALE)
            + options.plateau_weight * plateau(win_rate)
            + options.progress_weight * _clip01(learning_progress(item) / PROGRESS_SCALE)
            - options.centre_weight * (win_rate - 0.5) ** 2 / 0.08
        )


class Ema:
    """Learning potential: how far an environment's mean return lies from the slow average of its skill.

    The average moves once an interval, by the mean of the skill's environments; until a skill has one, there is nothing to
    be far from and its environments get no reward.
    """

    def __init__(self, options: EmaOptions) -> None:
        self._options = options
        self._slow: dict[Skill, float] = {}

    def reward(self, item: RewardInput) -> float | None:
        if item.history.faults:
            return -self._options.fault_penalty
        slow = self._slow.get(item.history.environment.program.skill)
        if slow is None or item.mean_return is None:
            return None
        bonus = 0.0
        if self._options.variance_weight and item.return_variance is not None:
            bonus = self._options.variance_weight * variance_bonus(item.return_variance)
        return abs(item.mean_return - slow) + bonus

    def observe(self, items: Sequence[RewardInput]) -> None:
        """The interval is over: move each skill's average by what its environments gave."""
        returns: dict[Skill, list[float]] = {}
        for item in items:
            if item.mean_return is not None and not item.history.faults:
                returns.setdefault(item.history.environment.program.skill, []).append(item.mean_return)
        for skill, values in returns.items():
            mean, weight = math.fsum(values) / len(values), self._options.slow_weight
            before = self._slow.get(skill, mean)
            self._slow[skill] = (1 - weight) * before + weight * mean

    def state_dict(self) -> dict[str, Any]:
        return {"slow": {skill.value: value for skill, value in self._slow.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._slow = {Skill(name): float(value) for name, value in state["slow"].items()}


@hookimpl
def designer_reward() -> list[Factory[DesignerReward]]:
    return [
        Factory("hint_regret", lambda options, _: HintRegret(options), HintRegretOptions, "paired hint-regret, unfloored"),
        Factory("ema", lambda options, _: Ema(options), EmaOptions, "distance from the skill's slow average return"),
        Factory("blend", lambda options, _: Blend(options), BlendOptions, "0.4 regret + 0.6 plateau of the win rate"),
        Factory("solve_rate", lambda options, _: SolveRate(options), RewardOptions, "the plateau of the win rate alone"),
    ]
