"""The designer's rewards, term by term."""

import math

import pytest
from hypothesis import given, strategies as st
from play_fakes import door, in_pool, make_play

from spade_agentic.hooks.kinds import EnvironmentHistory, RewardInput
from spade_agentic.hooks.records import Arm, Regret, Skill, StopReason
from spade_agentic_plugins.rewards import (
    Blend,
    BlendOptions,
    Ema,
    EmaOptions,
    HintRegret,
    HintRegretOptions,
    RewardOptions,
    SolveRate,
    learning_progress,
    plateau,
    variance_bonus,
)

EVERY = [
    HintRegret(HintRegretOptions()), SolveRate(RewardOptions()), Blend(BlendOptions()), Ema(EmaOptions()),
]


def item(*, regret=None, stderr=0.1, win_rate=None, mean=None, variance=None, faults=0, returns=(), skill=Skill.DATA_RETRIEVAL):
    plays = tuple(make_play("e", i, 0, reward=r) for i, r in enumerate(returns))
    found = None if regret is None else Regret(regret, stderr, 4, 0.0, 0.0)
    history = EnvironmentHistory(in_pool(door(skill=skill)), plays, found, faults)
    return RewardInput(history, win_rate, mean, variance)


# --- hint_regret -------------------------------------------------------------------------------------------------------


@given(st.floats(-1, 1))
def test_hint_regret_is_the_unfloored_mean(mean):
    assert HintRegret(HintRegretOptions()).reward(item(regret=mean)) == mean


@given(st.floats(-1, 1))
def test_the_papers_floor_is_an_option(mean):
    assert HintRegret(HintRegretOptions(floor=True)).reward(item(regret=mean)) == max(0.0, mean)


def test_shrinking_trusts_a_regret_less_the_larger_its_error():
    reward = HintRegret(HintRegretOptions(prior_sd=0.2))
    assert reward.reward(item(regret=0.4, stderr=0.0)) == pytest.approx(0.4)
    assert reward.reward(item(regret=0.4, stderr=0.2)) == pytest.approx(0.2)
    assert reward.reward(item(regret=0.4, stderr=math.inf)) == pytest.approx(0.0)


def test_without_a_regret_hint_regret_says_nothing():
    assert HintRegret(HintRegretOptions()).reward(item(win_rate=0.5, mean=0.5)) is None


# --- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", EVERY, ids=lambda r: type(r).__name__)
def test_a_fault_is_charged_to_the_designer_in_every_reward(reward):
    """The timeout penalty was dead in the released blend."""
    assert reward.reward(item(regret=0.9, win_rate=0.5, mean=0.5, variance=0.25, faults=1)) == -0.5


@pytest.mark.parametrize("reward", EVERY, ids=lambda r: type(r).__name__)
def test_where_nothing_survived_no_reward_says_anything(reward):
    assert reward.reward(item()) is None


# --- plateau and solve_rate --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "value"), [(0.0, 0), (0.15, 0), (0.275, 0.5), (0.4, 1), (0.5, 1), (0.6, 1), (0.725, 0.5), (0.85, 0), (1.0, 0)]
)
def test_the_plateau_is_one_in_the_middle_and_falls_linearly(rate, value):
    assert plateau(rate) == pytest.approx(value)
    assert SolveRate(RewardOptions()).reward(item(win_rate=rate)) == pytest.approx(value)


def test_a_constant_return_of_one_half_wins_nothing():
    """It earned the full plateau in the reference: wins are counted here, not returns."""
    assert SolveRate(RewardOptions()).reward(item(win_rate=0.0, mean=0.5, variance=0.0)) == 0.0
    assert Blend(BlendOptions()).reward(item(regret=0.0, win_rate=0.0, mean=0.5)) == 0.0


# --- blend -------------------------------------------------------------------------------------------------------------


def test_blend_is_four_tenths_of_the_clipped_regret_and_six_tenths_of_the_plateau():
    blend = Blend(BlendOptions())
    assert blend.reward(item(regret=0.075, win_rate=0.5)) == pytest.approx(0.4 * 0.5 + 0.6)
    assert blend.reward(item(regret=0.9, win_rate=0.0)) == pytest.approx(0.4)
    assert blend.reward(item(regret=-0.9, win_rate=0.5)) == pytest.approx(0.6)


def test_the_optional_terms_of_blend_weigh_nothing_until_they_are_asked_for():
    given_ = item(regret=0.0, win_rate=0.3, returns=[0.0, 0.0, 1.0, 1.0])
    plain = Blend(BlendOptions()).reward(given_)
    assert Blend(BlendOptions(progress_weight=0.5)).reward(given_) == pytest.approx(plain + 0.5)
    assert Blend(BlendOptions(centre_weight=2.0)).reward(given_) == pytest.approx(plain - 2.0 * 0.04 / 0.08)


def test_learning_progress_is_the_late_half_minus_the_early_half_of_plain_plays():
    assert learning_progress(item(returns=[0, 0, 1, 1])) == 1.0
    assert learning_progress(item(returns=[1, 0.5, 0])) == -1.0, "the middle play belongs to neither half"
    assert learning_progress(item(returns=[1])) == 0.0
    hinted = item(returns=[0, 0]).history
    plays = (*hinted.plays, make_play("e", 9, 0, Arm.HINTED), make_play("e", 9, 1, stop=StopReason.ENVIRONMENT_FAULT))
    assert learning_progress(RewardInput(EnvironmentHistory(hinted.environment, plays, None, 0), 0, 0, 0)) == 0.0


# --- ema and the variance bonus ----------------------------------------------------------------------------------------


def test_ema_is_the_distance_from_the_skills_slow_average():
    ema = Ema(EmaOptions())
    assert ema.reward(item(mean=0.9)) is None, "there is nothing to be far from yet"
    ema.observe([item(mean=0.2), item(mean=0.4)])
    assert ema.reward(item(mean=0.9)) == pytest.approx(0.6)
    assert ema.reward(item(mean=0.1)) == pytest.approx(0.2)
    assert ema.reward(item(mean=0.9, skill=Skill.TOOL_SELECTION)) is None, "every skill has an average of its own"


def test_the_slow_average_keeps_most_of_its_past():
    """The "slow" average of the reference kept 15 % of it."""
    ema = Ema(EmaOptions())
    ema.observe([item(mean=0.0)])
    ema.observe([item(mean=1.0)])
    assert ema.reward(item(mean=0.0)) == pytest.approx(0.15)


def test_a_faulty_environment_does_not_move_the_average():
    ema = Ema(EmaOptions())
    ema.observe([item(mean=0.5)])
    ema.observe([item(mean=0.0, faults=1), item()])
    assert ema.reward(item(mean=0.5)) == pytest.approx(0.0)


def test_the_averages_survive_a_resume():
    ema, resumed = Ema(EmaOptions()), Ema(EmaOptions())
    ema.observe([item(mean=0.3)])
    resumed.load_state_dict(ema.state_dict())
    assert resumed.reward(item(mean=0.9)) == ema.reward(item(mean=0.9))


@pytest.mark.parametrize(("variance", "value"), [(0.25, 1.0), (0.0, math.exp(-3.125)), (0.15, math.exp(-0.5))])
def test_the_variance_bonus_is_highest_for_a_coin(variance, value):
    assert variance_bonus(variance) == pytest.approx(value)
    ema = Ema(EmaOptions(variance_weight=2.0))
    ema.observe([item(mean=0.5)])
    assert ema.reward(item(mean=0.5, variance=variance)) == pytest.approx(2.0 * value)
