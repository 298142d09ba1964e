"""The signal is audited on every batch; a breach has a name."""

import dataclasses
import unicodedata
from pathlib import Path

import pytest
import structlog
from play_fakes import door, in_pool, make_play, trajectory

from spade_agentic.hooks.kinds import TrainSequence
from spade_agentic.hooks.records import (
    Arm,
    Completion,
    Draft,
    FinishReason,
    Refusal,
    Role,
    Sampling,
    Segment,
    Skill,
    StopReason,
)
from spade_agentic.rollout.episode import with_hint
from spade_agentic.selfplay.audit import CHECKS, audit_step
from spade_agentic.selfplay.batch import BatchMaker
from spade_agentic.selfplay.delay import WaitingDraft

GOOD = {
    "agent/ratio_mean": 1.0001, "designer/ratio_mean": 0.9999, "agent/ratio_p50": 1.0, "designer/ratio_p50": 1.0,
    "agent/mismatch_kl": 1e-5, "designer/mismatch_kl": 1e-5,
    "agent/signal": 1.0, "designer/signal": 0.5,
}


def drafts(version=0):
    return [
        Draft(f"d{i}", Skill.DATA_RETRIEVAL, 0, i, 0, trajectory(Role.DESIGNER, version=version), "text") for i in range(2)
    ]


def plays(version=0):
    return [make_play(repeat=r, arm=arm, reward=r % 2, version=version) for r in range(4) for arm in Arm]


def batch_of(some_plays, some_drafts, rewards=(0.1, 0.5)):
    for draft, reward in zip(some_drafts, rewards, strict=False):
        draft.reward = reward
    maker = BatchMaker(Sampling(), Sampling(), "instance", -1.0, 50.0, 4)
    waiting = [WaitingDraft(d, 0, f"e{i}", r, True) for i, (d, r) in enumerate(zip(some_drafts, rewards, strict=False))]
    return maker.make(some_plays, waiting)[0]


def audit(version=0, some_plays=None, some_drafts=None, batch=None, trained=GOOD, **options):
    some_plays = plays() if some_plays is None else some_plays
    some_drafts = drafts() if some_drafts is None else some_drafts
    batch = batch_of(some_plays, some_drafts) if batch is None else batch
    with structlog.testing.capture_logs() as logs:
        metrics = audit_step(version, some_plays, some_drafts, batch, trained, **options)
    said = [log for log in logs if log["event"] == "audit_breach"]
    breaches = [log["check"] for log in said]
    assert metrics["audit/breaches"] == len(breaches)
    assert {name for name in metrics if name.startswith("audit/breach/")} == {f"audit/breach/{check}" for check in breaches}
    assert all(log["log_level"] == "warning" and log["step"] == version + 1 and log["required"] == CHECKS[log["check"]]
               for log in said)
    return metrics, breaches


def test_a_sound_batch_has_no_breach():
    metrics, breaches = audit()
    assert breaches == []
    assert metrics["audit/hinted_tokens"] == 0
    assert metrics["audit/length"] == 1.0


def test_a_hinted_play_in_the_batch_is_a_breach():
    played = plays()
    hinted = next(p for p in played if p.arm is Arm.HINTED)
    smuggled = make_play(repeat=hinted.repeat, reward=0.0)
    smuggled.play_id = hinted.play_id
    extra = batch_of([smuggled, make_play(seed=hinted.seed, repeat=9, reward=1.0)], [])[:1]
    metrics, breaches = audit(some_plays=played, batch=[*batch_of(played, drafts()), *extra])
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


@pytest.mark.parametrize(("role", "value"), [("agent", 0.0035), ("designer", 0.0035), ("agent", float("nan"))])
def test_log_probs_that_scatter_around_those_of_the_same_weights_are_a_breach(role, value):
    """The mean ratio is 1 all the same: that is what importance sampling means."""
    _, breaches = audit(trained={**GOOD, f"{role}/mismatch_kl": value})
    assert breaches == [f"{role}_mismatch"]


def test_drafts_that_older_weights_sampled_may_have_another_ratio():
    metrics, breaches = audit(
        4, plays(version=4), drafts(version=0), trained={**GOOD, "designer/ratio_mean": 1.4, "designer/mismatch_kl": 0.1}
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


def test_what_a_learner_does_not_report_is_counted_as_unchecked():
    metrics, breaches = audit(trained={})
    assert breaches == []
    assert "audit/agent_ratio" not in metrics
    assert metrics["audit/unchecked"] == 6, "tokens, two ratios, two mismatches, one gradient"
    assert audit(trained={**GOOD, "trained_tokens": 24})[0]["audit/unchecked"] == 0


def test_an_empty_step_is_no_breach():
    metrics, breaches = audit(some_plays=[], some_drafts=[], batch=[], trained={})
    assert breaches == []
    assert metrics["audit/hinted_tokens"] == 0
    assert metrics["audit/unchecked"] == 0


# --- which tokens ----------------------------------------------------------------------------------------------------------


def test_log_probs_that_are_not_those_of_the_tokens_are_a_breach():
    played = plays()
    first, *rest = batch_of(played, drafts())
    shifted = dataclasses.replace(first, rollout_logprobs=(*first.rollout_logprobs[1:], 0.0))
    assert audit(some_plays=played, batch=[shifted, *rest])[1] == ["hinted_tokens"]


@pytest.mark.parametrize("shift", [1, -1])
def test_a_mask_that_is_off_by_one_where_it_was_recorded_is_a_breach(shift):
    """The batch repeats it faithfully: only the weight versions know better."""
    played, some = plays(), drafts()
    for play in played:
        segment = play.trajectory.segments[0]
        segment.mask[:] = [False, *segment.mask[:-1]] if shift == 1 else [*segment.mask[1:], False]
    metrics, breaches = audit(some_plays=played, some_drafts=some, batch=batch_of(played, some))
    assert breaches == ["mask"]
    assert metrics["audit/mask"] == (4 if shift == 1 else 8)


def test_a_token_of_weights_that_do_not_exist_yet_is_a_breach():
    played = plays()
    played[0].trajectory.segments[0].versions[-1] = 1
    assert "mask" in audit(some_plays=played)[1]


def prompted(arm, prompt, repeat=0):
    """A play whose prompt is these characters, one a token."""
    play = make_play(repeat=repeat, arm=arm, reward=float(repeat % 2))
    play.trajectory.segments = [Segment()]
    play.trajectory.segments[0].append_context([ord(c) for c in prompt])
    play.trajectory.segments[0].append_completion(Completion((50,), (-0.5,), (0,), FinishReason.STOP))
    return play


@pytest.mark.parametrize("swapped", [False, True])
def test_an_arm_that_saw_what_the_other_should_have_seen_is_a_breach(swapped):
    environment = in_pool(door(), "e0", hint="Say the key, e\u0301veryone: it is in the first line of what you read. ")
    hinted_sees, plain_sees = with_hint("Open.", environment.hint), "Open."
    if swapped:
        hinted_sees, plain_sees = plain_sees, hinted_sees
    played = [p for r in range(2) for p in (prompted(Arm.PLAIN, plain_sees, r), prompted(Arm.HINTED, hinted_sees, r))]
    metrics, breaches = audit(
        some_plays=played, environments=[environment],
        text_of=lambda ids: unicodedata.normalize("NFC", "".join(map(chr, ids))),  # as Qwen3's tokenizer does
    )
    assert breaches == (["arms"] if swapped else [])
    assert metrics["audit/arms"] == (4 if swapped else 0)


def test_the_arms_of_an_environment_with_an_empty_hint_do_not_differ_and_are_no_breach():
    played = [prompted(arm, "Open.", r) for r in range(2) for arm in Arm]
    environments = [in_pool(door(), "e0", hint="")]
    assert audit(some_plays=played, environments=environments, text_of=lambda ids: "".join(map(chr, ids)))[1] == []


def test_a_seed_that_is_another_instance_in_the_other_arm_is_a_breach():
    played = plays()
    for play in played:
        play.first_observation = "Door A" if play.arm is Arm.PLAIN else "Door B"
    metrics, breaches = audit(some_plays=played)
    assert breaches == ["instances"]
    assert metrics["audit/instances"] == 1


def test_a_play_that_never_began_is_no_other_instance():
    played = plays()
    for play in played:
        play.first_observation = "Door A"
    assert audit(some_plays=[*played, make_play(repeat=7, stop=StopReason.ENVIRONMENT_FAULT)])[1] == []


# --- how much each pulls ---------------------------------------------------------------------------------------------------


def rescaled(batch, role, factor, shift=0.0):
    return [dataclasses.replace(s, advantage=s.advantage * factor + shift) if s.role is role else s for s in batch]


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize(("factor", "shift"), [(0.5, 0.0), (1.0, 0.1), (-1.0, 0.0)])
def test_advantages_that_the_returns_do_not_give_are_a_breach(role, factor, shift):
    played, some = plays(), drafts()
    batch = rescaled(batch_of(played, some), role, factor, shift)
    metrics, breaches = audit(some_plays=played, some_drafts=some, batch=batch)
    assert breaches == [f"{role.value}_advantages"]
    assert metrics[f"audit/{role.value}_advantages"] == (4 if role is Role.AGENT else 2)


@pytest.mark.parametrize("role", list(Role))
def test_a_sample_that_is_left_out_of_the_batch_is_a_breach(role):
    played, some = plays(), drafts()
    batch = batch_of(played, some)
    batch.remove(next(s for s in batch if s.role is role))
    assert audit(some_plays=played, some_drafts=some, batch=batch)[1] == [f"{role.value}_advantages"]


def test_a_group_whose_returns_are_all_equal_must_not_be_trained():
    played = plays()
    batch = batch_of(played, [])
    for play in played:
        play.reward = 1.0
    assert audit(some_plays=played, some_drafts=[], batch=batch)[1] == ["agent_advantages"]


def test_groups_are_environments_where_the_config_says_so():
    played = [make_play(seed=seed, reward=seed % 2) for seed in range(4)]
    maker = BatchMaker(Sampling(), Sampling(), "environment", -1.0, 50.0, 4)
    batch = maker.make(played, [])[0]
    assert audit(some_plays=played, some_drafts=[], batch=batch, agent_group="environment")[1] == []
    assert audit(some_plays=played, some_drafts=[], batch=batch)[1] == ["agent_advantages"]


def with_a_refusal():
    refused = Draft("r", Skill.DATA_RETRIEVAL, 0, 2, 0, trajectory(Role.DESIGNER, sampled=40), "t", refusal=Refusal("g", "c"))
    some = [*drafts(), refused]
    return some, batch_of(plays(), some, rewards=(0.1, 0.5, None))


def test_refusals_that_outweigh_what_was_admitted_are_a_breach():
    some, batch = with_a_refusal()
    assert audit(some_drafts=some, batch=batch)[1] == []
    heavy = [dataclasses.replace(s, weight=s.weight * 3) if s.advantage == -1.0 else s for s in batch]
    metrics, breaches = audit(some_drafts=some, batch=heavy)
    assert breaches == ["designer_refusals"]
    assert metrics["audit/designer_refusals"] == pytest.approx(0.75)


def test_a_refusal_that_is_encouraged_is_a_breach():
    some, batch = with_a_refusal()
    kind = [dataclasses.replace(s, advantage=0.5) if s.advantage == -1.0 else s for s in batch]
    assert "designer_advantages" in audit(some_drafts=some, batch=kind)[1]


# --- what the learner reports ------------------------------------------------------------------------------------------------


def test_a_learner_that_trained_other_tokens_than_it_was_given_is_a_breach():
    assert audit(trained={**GOOD, "trained_tokens": 24})[1] == []
    assert audit(trained={**GOOD, "trained_tokens": 23})[1] == ["tokens"]


@pytest.mark.parametrize("median", [0.1, 3.0, float("nan")])
def test_old_drafts_whose_tokens_the_learner_finds_elsewhere_are_a_breach(median):
    """The designer's ratio is never due to be 1 where its samples wait, so a mask off by one would not show in its mean."""
    trained = {**GOOD, "designer/ratio_mean": 1.4, "designer/ratio_p50": median}
    assert audit(4, plays(version=4), drafts(version=0), trained=trained)[1] == ["designer_drift"]


def test_every_check_has_a_test_that_breaks_it():
    source = Path(__file__).read_text(encoding="utf-8").replace("{role.value}", "agent").replace("{role}", "agent")
    assert [check for check in CHECKS if check.replace("designer", "agent") not in source.replace("designer", "agent")] == []
