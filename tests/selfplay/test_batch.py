"""What a step trains on: groups, baselines, and how much every side weighs."""

import math
import statistics

import pytest
from hypothesis import given, strategies as st
from play_fakes import make_play, trajectory

from spade_agentic.hooks.records import Arm, Draft, Refusal, Role, Sampling, Skill, StopReason
from spade_agentic.runs.codec import pack, unpack
from spade_agentic.selfplay.batch import BatchMaker, owner_of
from spade_agentic.selfplay.delay import WaitingDraft

A, B = Skill.DATA_RETRIEVAL, Skill.TOOL_SELECTION


def maker(**options):
    return BatchMaker(**{
        "agent_sampling": Sampling(temperature=0.8), "designer_sampling": Sampling(temperature=1.2), "agent_group": "instance",
        "refused_advantage": -1.0, "weight_cap": 50.0, "interval": 4, **options,
    })


def due(name, reward=None, *, skill=A, refused=False, tokens=4, round_index=0):
    refusal = Refusal("parse", "syntax") if refused else None
    draft = Draft(name, skill, round_index, 0, 0, trajectory(Role.DESIGNER, sampled=tokens), "text", refusal=refusal)
    return WaitingDraft(draft, 0, None if refused else f"e-{name}", reward, settled=not refused)


def by_owner(batch):
    return {owner_of(s): s for s in batch}


# --- agent -------------------------------------------------------------------------------------------------------------


def test_a_hinted_token_is_in_no_loss():
    plays = [make_play(seed=0, repeat=r, arm=arm, reward=r % 2) for r in range(4) for arm in Arm]
    batch, _ = maker().make(plays, [])
    assert {owner_of(s) for s in batch} == {p.play_id for p in plays if p.arm is Arm.PLAIN}


def test_void_plays_are_not_in_the_group_and_not_in_the_loss():
    plays = [make_play(repeat=r, reward=r % 2) for r in range(4)]
    void = [make_play(repeat=9, reward=0.0, stop=s) for s in (StopReason.ENVIRONMENT_FAULT, StopReason.ABORTED)]
    assert maker().make([*plays, void[0]], [])[0] == maker().make([*plays, void[1]], [])[0] == maker().make(plays, [])[0]


def test_a_truncated_play_stays_in_the_batch_with_its_return_of_zero():
    plays = [make_play(repeat=0, reward=1.0), make_play(repeat=1, reward=0.0, stop=StopReason.TRUNCATED)]
    batch = by_owner(maker().make(plays, [])[0])
    assert batch[plays[1].play_id].advantage < 0


def test_plays_are_compared_with_plays_of_the_same_instance():
    plays = [make_play(seed=seed, repeat=r, reward=seed * 10 + r) for seed in range(2) for r in range(2)]
    plays = [make_play(seed=p.seed, repeat=p.repeat, reward=p.reward) for p in plays]
    batch = by_owner(maker().make(plays, [])[0])
    assert [round(batch[p.play_id].advantage, 4) for p in plays] == [-1.0, 1.0, -1.0, 1.0]


def test_the_papers_preset_compares_within_the_environment():
    plays = [make_play(seed=seed, reward=float(seed)) for seed in range(2)]
    assert maker().make(plays, [])[0] == []
    batch = by_owner(maker(agent_group="environment").make(plays, [])[0])
    assert [round(batch[p.play_id].advantage, 4) for p in plays] == [-1.0, 1.0]


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=8))
def test_advantages_are_standardised_and_a_group_without_variance_gives_nothing(rewards):
    plays = [make_play(repeat=i, reward=r) for i, r in enumerate(rewards)]
    batch, metrics = maker().make(plays, [])
    if len(set(rewards)) == 1:
        assert batch == []
        assert metrics["batch/plays_without_signal"] == len(rewards)
    else:
        values = [s.advantage for s in batch]
        assert statistics.fmean(values) == pytest.approx(0, abs=1e-6)
        assert statistics.pstdev(values) == pytest.approx(1, abs=1e-6)


def test_a_sequence_is_the_trajectory_token_for_token():
    plays = [make_play(repeat=r, reward=r) for r in range(2)]
    for sequence in maker().make(plays, [])[0]:
        [play] = [p for p in plays if p.play_id == owner_of(sequence)]
        [segment] = play.trajectory.segments
        assert sequence.token_ids == tuple(segment.token_ids)
        assert sequence.mask == tuple(segment.mask)
        assert sequence.rollout_logprobs == tuple(segment.logprobs)
        assert sequence.temperature == 0.8
        assert (sequence.prefix_key, sequence.prefix_len) == ("e0:0", 3)


def test_every_segment_is_a_sequence_with_the_plays_advantage():
    plays = [make_play(repeat=r, reward=r) for r in range(2)]
    plays[0].trajectory.segments += trajectory(first=30).segments
    plays[0].trajectory.segments += trajectory(sampled=0).segments
    batch, _ = maker().make(plays, [])
    mine = [s for s in batch if owner_of(s) == plays[0].play_id]
    assert len(mine) == 2, "a segment without a sampled token trains nothing"
    assert len({s.advantage for s in mine}) == 1
    assert len({s.sequence_id for s in batch}) == 3


def test_no_agent_sample_is_dropped_beside_the_designers():
    """The reference silently dropped 24 agent samples in every step with designer samples."""
    plays = [make_play(seed=s, repeat=r, reward=r % 2) for s in range(6) for r in range(4)]
    alone, _ = maker().make(plays, [])
    together, _ = maker().make(plays, [due(f"d{i}", i / 10) for i in range(12)])
    assert [s for s in together if s.role is Role.AGENT] == alone
    assert len(alone) == 24


# --- designer ----------------------------------------------------------------------------------------------------------


def test_drafts_are_centred_within_skill_and_round_and_not_standardised():
    drafts = [due("a", 0.1), due("b", 0.3), due("c", 0.9, skill=B), due("d", 0.5, skill=B)]
    batch = by_owner(maker().make([], drafts)[0])
    assert [round(batch[d.draft.draft_id].advantage, 6) for d in drafts] == [-0.1, 0.1, 0.2, -0.2]


def test_the_designers_advantage_keeps_the_scale_of_its_reward():
    """It reached +-19 against the agent's +-2.65 in the reference."""
    rewards = [0.0, 0.5, 1.0]
    batch, _ = maker().make([], [due(f"d{r}", r) for r in rewards])
    assert max(abs(s.advantage) for s in batch) <= 1.0


def test_a_draft_that_is_alone_in_its_skill_is_compared_with_the_others_of_its_round():
    batch = by_owner(maker().make([], [due("a", 0.6), due("b", 0.2, skill=B)])[0])
    assert batch["a"].advantage == pytest.approx(0.4)
    assert batch["b"].advantage == pytest.approx(-0.4)


def test_a_draft_that_is_alone_in_its_round_is_compared_with_earlier_rounds():
    made = maker()
    first = by_owner(made.make([], [due("a", 0.6)])[0])
    assert first["a"].advantage == pytest.approx(0.6), "before anything was earned: with 0"
    resumed = maker()
    resumed.load_state_dict(unpack(pack(made.state_dict())))
    for one in (made, resumed):
        later = by_owner(one.make([], [due("b", 0.6, round_index=1)])[0])
        assert later["b"].advantage == pytest.approx(0.0)
        assert by_owner(one.make([], [due("c", 0.9, round_index=2)])[0])["c"].advantage == pytest.approx(0.3)


def test_the_designers_gradient_is_never_structurally_zero():
    """One draft a skill and round, as a curriculum with three active skills and three slots makes them."""
    drafts = [due(f"d{i}", r, skill=skill) for i, (r, skill) in enumerate(zip([0.1, 0.5, 0.9], list(Skill), strict=False))]
    batch, _ = maker().make([], drafts)
    assert all(s.advantage != 0 and s.weight > 0 for s in batch if owner_of(s) != "d1")


def test_a_refused_draft_has_a_fixed_negative_advantage_and_is_in_no_baseline():
    drafts = [due("a", 0.1), due("b", 0.3), due("x", refused=True)]
    batch = by_owner(maker().make([], drafts)[0])
    assert batch["x"].advantage == -1.0
    assert batch["a"].advantage == pytest.approx(-0.1)


@given(
    refused=st.lists(st.integers(1, 60), min_size=1, max_size=30),
    admitted=st.lists(st.tuples(st.floats(-1, 1), st.integers(1, 60)), min_size=2, max_size=6),
)
def test_all_refusals_together_weigh_no_more_than_the_admitted(refused, admitted):
    drafts = [due(f"x{i}", refused=True, tokens=n) for i, n in enumerate(refused)]
    drafts += [due(f"a{i}", reward, tokens=n) for i, (reward, n) in enumerate(admitted)]
    batch, _ = maker().make([], drafts)

    def mass(letter):
        return math.fsum(abs(s.advantage) * s.weight * sum(s.mask) for s in batch if owner_of(s).startswith(letter))

    assert mass("x") <= mass("a") * (1 + 1e-9) + 1e-12


def test_with_refused_advantage_zero_refusals_have_no_say():
    drafts = [due("a", 0.1), due("b", 0.3), due("x", refused=True)]
    batch, _ = maker(refused_advantage=0.0).make([], drafts)
    assert {owner_of(s) for s in batch} == {"a", "b"}


def test_a_draft_that_said_nothing_is_not_trained():
    silent = due("x", refused=True)
    silent.draft.trajectory = None
    empty = due("y", refused=True, tokens=0)
    assert maker().make([], [silent, empty])[0] == []


# --- the roles' weights --------------------------------------------------------------------------------------------------


def agent_plays(count):
    return [make_play(seed=i // 2, repeat=i % 2, reward=i % 2) for i in range(count)]


def test_the_designer_weighs_as_much_as_the_agent_over_an_interval():
    batch, metrics = maker(interval=4).make(agent_plays(8), [due("a", 0.1, tokens=8), due("b", 0.3, tokens=8)])
    agent_tokens, designer_tokens = 8 * 4, 16
    assert metrics["batch/designer_weight"] == agent_tokens / designer_tokens * 4
    assert {s.weight for s in batch if s.role is Role.AGENT} == {1.0}
    assert {s.weight for s in batch if s.role is Role.DESIGNER} == {8.0}


def test_the_designers_weight_is_capped():
    _, metrics = maker(weight_cap=3.0).make(agent_plays(64), [due("a", 0.1), due("b", 0.3)])
    assert metrics["batch/designer_weight"] == 3.0


def test_without_any_agent_signal_the_designer_still_learns():
    _, metrics = maker().make([], [due("a", 0.1), due("b", 0.3)])
    assert metrics["batch/designer_weight"] > 0


def test_a_refusals_share_is_part_of_its_sequences_weight():
    drafts = [due("a", 0.1), due("b", 0.3), *(due(f"x{i}", refused=True) for i in range(9))]
    batch = by_owner(maker().make(agent_plays(4), drafts)[0])
    assert batch["x0"].weight < batch["a"].weight
