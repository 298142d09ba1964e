"""The signal is audited on every batch; a breach has a name."""

import pytest
import structlog
from play_fakes import door, in_pool, make_play, trajectory

from spade_agentic.hooks.kinds import TrainSequence
from spade_agentic.hooks.records import Arm, Draft, Refusal, Role, Sampling, Skill, StopReason
from spade_agentic.selfplay.audit import audit_step
from spade_agentic.selfplay.batch import BatchMaker
from spade_agentic.selfplay.delay import WaitingDraft

GOOD = {"agent/ratio_mean": 1.0001, "designer/ratio_mean": 0.9999, "agent/signal": 1.0, "designer/signal": 0.5}


def drafts(version=0):
    return [
        Draft(f"d{i}", Skill.DATA_RETRIEVAL, 0, i, 0, trajectory(Role.DESIGNER, version=version), "text") for i in range(2)
    ]


def plays(version=0):
    return [make_play(repeat=r, arm=arm, reward=r % 2, version=version) for r in range(4) for arm in Arm]


def batch_of(some_plays, some_drafts, rewards=(0.1, 0.5)):
    maker = BatchMaker(Sampling(), Sampling(), "instance", -1.0, 50.0, 4)
    waiting = [WaitingDraft(d, 0, f"e{i}", r, True) for i, (d, r) in enumerate(zip(some_drafts, rewards, strict=False))]
    return maker.make(some_plays, waiting)[0]


def audit(version=0, some_plays=None, some_drafts=None, batch=None, trained=GOOD, **options):
    some_plays = plays() if some_plays is None else some_plays
    some_drafts = drafts() if some_drafts is None else some_drafts
    batch = batch_of(some_plays, some_drafts) if batch is None else batch
    with structlog.testing.capture_logs() as logs:
        metrics = audit_step(version, some_plays, some_drafts, batch, trained, **options)
    breaches = [(log["check"], log["step"]) for log in logs if log["event"] == "audit_breach"]
    assert metrics["audit/breaches"] == len(breaches)
    return metrics, [check for check, _ in breaches]


def test_a_sound_batch_has_no_breach():
    metrics, breaches = audit()
    assert breaches == []
    assert metrics["audit/hinted_tokens"] == 0
    assert metrics["audit/length"] == 1.0


def test_a_hinted_play_in_the_batch_is_a_breach():
    played = plays()
    hinted = next(p for p in played if p.arm is Arm.HINTED)
    plain = make_play(repeat=hinted.repeat, reward=0.0)
    plain.play_id = hinted.play_id
    smuggled = batch_of([plain, make_play(repeat=9, reward=1.0)], [])
    metrics, breaches = audit(some_plays=[*played, make_play(repeat=9, reward=1.0)], batch=smuggled)
    assert breaches == ["hinted_tokens"]
    assert metrics["audit/hinted_tokens"] == 4


@pytest.mark.parametrize("change", [{"token_ids": (1,) * 7}, {"mask": (False,) * 2 + (True,) * 5}, {"role": Role.DESIGNER}])
def test_a_token_that_was_not_sampled_there_is_a_breach(change):
    played = plays()
    good = batch_of(played, [])
    values = {name: getattr(good[0], name) for name in TrainSequence.__dataclass_fields__}
    _, breaches = audit(some_plays=played, batch=[TrainSequence(**{**values, **change}), *good[1:]])
    assert "hinted_tokens" in breaches


@pytest.mark.parametrize(("role", "value"), [("agent", 1.1), ("agent", 0.9), ("designer", 1.1), ("agent", float("nan"))])
def test_a_ratio_that_is_not_one_where_the_weights_are_the_same_is_a_breach(role, value):
    """At step 0 both roles were sampled by the very weights that train."""
    _, breaches = audit(trained={**GOOD, f"{role}/ratio_mean": value})
    assert breaches == [f"{role}_ratio"]


def test_drafts_that_older_weights_sampled_may_have_another_ratio():
    metrics, breaches = audit(
        4, plays(version=4), drafts(version=0), trained={**GOOD, "designer/ratio_mean": 1.4}
    )
    assert breaches == []
    assert "audit/designer_ratio" not in metrics


def test_drafts_that_earned_differently_and_move_nothing_are_a_breach():
    _, breaches = audit(trained={**GOOD, "designer/signal": 0.0})
    assert breaches == ["designer_gradient"]


def test_drafts_that_earned_the_same_have_nothing_to_say():
    some = drafts()
    batch = batch_of(plays(), some, rewards=(0.5, 0.5))
    _, breaches = audit(some_drafts=some, batch=batch, trained={**GOOD, "designer/signal": 0.0})
    assert breaches == []


def test_refusals_beside_drafts_that_earned_the_same_have_nothing_to_say():
    why = Refusal("gate", "code", "no")
    refused = Draft("r", Skill.DATA_RETRIEVAL, 0, 2, 0, trajectory(Role.DESIGNER), "text", refusal=why)
    some = [*drafts(), refused]
    batch = batch_of(plays(), some, rewards=(0.5, 0.5, None))
    assert any(s.advantage < 0 for s in batch)
    _, breaches = audit(some_drafts=some, batch=batch, trained={**GOOD, "designer/signal": 0.0})
    assert breaches == []


def test_training_short_plays_only_is_a_breach():
    long = [make_play(seed=1, repeat=r, sampled=50, stop=StopReason.ABORTED, reward=0.0) for r in range(4)]
    metrics, breaches = audit(some_plays=[*plays(), *long])
    assert breaches == ["length"]
    assert metrics["audit/length_consumed"] == 4
    assert metrics["audit/length_issued"] == 27


def test_a_held_out_instance_that_is_played_is_a_breach():
    _, breaches = audit(some_plays=[*plays(), make_play(seed=10**6)])
    assert breaches == ["heldout"]


def test_a_reserved_program_that_is_played_is_a_breach():
    metrics, breaches = audit(environments=[in_pool(door(), "e0")], reserved=lambda program: "kept for evaluation")
    assert breaches == ["heldout"]
    assert metrics["audit/heldout"] == 8


def test_a_learner_that_reports_nothing_cannot_be_checked_and_says_so_by_silence():
    metrics, breaches = audit(trained={})
    assert breaches == []
    assert "audit/agent_ratio" not in metrics


def test_an_empty_step_is_no_breach():
    metrics, breaches = audit(some_plays=[], some_drafts=[], batch=[], trained={})
    assert breaches == []
    assert metrics["audit/hinted_tokens"] == 0
