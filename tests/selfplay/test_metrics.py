"""What is shown is what was played; what cannot be said is left out."""

import math

import pytest
from play_fakes import door, in_pool, make_play

from spade_agentic.hooks.kinds import EnvironmentHistory, RewardInput
from spade_agentic.hooks.records import (
    Arm,
    Completion,
    FinishReason,
    ParseOutcome,
    Regret,
    Role,
    Segment,
    StopReason,
    Trajectory,
    Turn,
)
from spade_agentic.selfplay.metrics import play_metrics, regret_metrics, staleness_metrics
from spade_agentic.testing import sample_draft


def test_success_is_per_arm_over_plays_that_are_not_void():
    plays = [make_play(repeat=0), make_play(repeat=1, reward=0.0), make_play(repeat=2, stop=StopReason.ENVIRONMENT_FAULT)]
    metrics = play_metrics([*plays, make_play(arm=Arm.HINTED)])
    assert metrics["plays/plain/success"] == 0.5
    assert metrics["plays/hinted/success"] == 1.0
    assert (metrics["plays/plain/count"], metrics["plays/plain/void"]) == (3, 1)


def test_malformed_and_truncated_turns_are_counted():
    play = make_play(stop=StopReason.TRUNCATED, reward=0.0)
    play.turns = [Turn("", outcome, (), ()) for outcome in (ParseOutcome.MALFORMED, ParseOutcome.TRUNCATED)]
    metrics = play_metrics([play])
    assert metrics["plays/plain/malformed_share"] == 0.5
    assert metrics["plays/plain/stop/truncated"] == 1.0


def test_an_arm_that_was_not_played_has_no_numbers():
    assert not any(name.startswith("plays/hinted") for name in play_metrics([make_play()]))
    assert play_metrics([]) == {}


def sampled_by(*versions, role=Role.AGENT):
    """A trajectory whose sampled tokens are of ``versions``; context tokens stand around them and count for nothing."""
    segment = Segment()
    for version in versions:
        segment.append_context([1, 2])
        segment.append_completion(Completion((3,), (0.0,), (version,), FinishReason.STOP))
    return Trajectory(role, [segment])


def test_staleness_is_over_the_tokens_that_are_trained():
    plays = [make_play(repeat=0), make_play(repeat=1, arm=Arm.HINTED), make_play(repeat=2, stop=StopReason.ENVIRONMENT_FAULT)]
    for play, versions in zip(plays, [(5, 4, 3), (0,), (0,)], strict=True):
        play.trajectory = sampled_by(*versions)
    draft = sample_draft()
    draft.trajectory = sampled_by(1, 1, role=Role.DESIGNER)
    assert staleness_metrics(5, plays, [draft]) == {
        "agent/staleness_mean": 1.0, "agent/staleness_max": 2, "designer/staleness_mean": 4.0, "designer/staleness_max": 4,
    }  # fmt: skip
    assert staleness_metrics(5, [], []) == {}


def inputs(*rates):
    histories = [EnvironmentHistory(in_pool(door()), (), None, 0) for _ in rates]
    return [RewardInput(h, rate, rate, 0.0) for h, rate in zip(histories, rates, strict=True)]


def test_the_mean_regret_is_unfloored_and_its_error_is_over_environments():
    regrets = {f"e{i}": Regret(mean, 0.1, 4, 0.5, 0.5 - mean) for i, mean in enumerate([-0.4, 0.2])}
    metrics = regret_metrics(regrets, inputs(0.1, 0.5))
    assert metrics["regret/mean"] == pytest.approx(-0.1)
    assert metrics["regret/stderr"] == pytest.approx(0.3)
    assert metrics["interval/learnable_share"] == 0.5


def test_without_a_regret_there_is_no_mean_of_it():
    metrics = regret_metrics({}, inputs(None))
    assert "regret/mean" not in metrics
    assert metrics["interval/with_regret"] == 0
    assert not any(math.isnan(value) for value in metrics.values())
