"""Advantages by explicit keys: what each role's rule promises, for any rewards."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings, strategies as st

from spade_agentic.learning.advantages import DesignerSample, agent_advantages, designer_advantages, designer_weight

rewards = st.floats(-1, 1, allow_nan=False).map(lambda x: round(x, 3))
plays = st.lists(st.tuples(rewards, st.tuples(st.integers(0, 2), st.integers(0, 2))), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(plays=plays)
def test_a_group_is_standardised_or_silent(plays: list[tuple[float, tuple[int, int]]]) -> None:
    values, keys = [r for r, _ in plays], [k for _, k in plays]
    result = agent_advantages(values, keys)
    for key in set(keys):
        mine = [a for a, k in zip(result, keys, strict=True) if k == key]
        group = [r for r, k in zip(values, keys, strict=True) if k == key]
        if len(set(group)) == 1:
            assert mine == [None] * len(mine)
            continue
        advantages = [a for a in mine if a is not None]
        assert len(advantages) == len(mine)
        assert math.fsum(advantages) == pytest.approx(0.0, abs=1e-6)
        assert math.fsum(a * a for a in advantages) / len(advantages) == pytest.approx(1.0, abs=1e-4)
        assert sorted(range(len(group)), key=lambda i: (group[i], i)) == sorted(range(len(group)), key=lambda i: (mine[i], i))


@settings(max_examples=100, deadline=None)
@given(plays=plays, seed=st.integers(0, 99))
def test_the_order_of_plays_does_not_show_in_the_last_bit(plays: list[tuple[float, tuple[int, int]]], seed: int) -> None:
    order = random.Random(seed).sample(range(len(plays)), len(plays))
    straight = agent_advantages([r for r, _ in plays], [k for _, k in plays])
    shuffled = agent_advantages([plays[i][0] for i in order], [plays[i][1] for i in order])
    assert [straight[i] for i in order] == shuffled


def test_the_key_decides_what_is_compared() -> None:
    values = [1.0, 1.0, 0.0, 0.0]
    assert agent_advantages(values, [("e", 1), ("e", 1), ("e", 2), ("e", 2)]) == [None] * 4
    assert agent_advantages(values, ["e"] * 4) == pytest.approx([1, 1, -1, -1])


def test_an_all_equal_group_gives_nothing_even_where_rounding_differs() -> None:
    assert agent_advantages([0.1 + 0.2, 0.3, 0.3], ["e"] * 3) == [None] * 3


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_reward_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        agent_advantages([0.0, bad], ["e", "e"])
    with pytest.raises(ValueError, match="not finite"):
        designer_advantages([draft(bad)])


def test_rewards_without_a_key_each_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rewards but 1 keys"):
        agent_advantages([0.0, 1.0], ["e"])


def draft(reward: float | None, skill: str = "a", *, round_index: int = 0, tokens: int = 10) -> DesignerSample:
    return DesignerSample(skill, round_index, reward, reward is None, tokens)


drafts = st.lists(
    st.builds(
        lambda reward, skill, round_index, tokens: draft(reward, skill, round_index=round_index, tokens=tokens),
        st.none() | rewards, st.sampled_from("abc"), st.integers(0, 1), st.integers(1, 60),
    ),
    min_size=1, max_size=30,
)


@settings(max_examples=300, deadline=None)
@given(samples=drafts)
def test_refusals_together_never_outweigh_the_admitted_of_their_round(samples: list[DesignerSample]) -> None:
    result = designer_advantages(samples, refused_advantage=-1.0)
    for round_index in {s.round_index for s in samples}:
        both = [(s, a) for s, a in zip(samples, result, strict=True) if s.round_index == round_index and a is not None]
        admitted = math.fsum(s.tokens * a.weight * abs(a.advantage) for s, a in both if not s.refused)
        refused = [s.tokens * a.weight * abs(a.advantage) for s, a in both if s.refused]
        if any(not s.refused for s, _ in both):
            assert math.fsum(refused) <= admitted * (1 + 1e-9)
        else:
            assert math.fsum(refused) <= max(s.tokens for s, _ in both) * (1 + 1e-9)


@settings(max_examples=200, deadline=None)
@given(samples=drafts)
def test_a_refusal_is_in_no_baseline(samples: list[DesignerSample]) -> None:
    result = designer_advantages(samples)
    kept = [s for s in samples if not s.refused]
    without = designer_advantages(kept)
    assert [a for s, a in zip(samples, result, strict=True) if not s.refused] == without
    assert all(a is not None and a.advantage == -1.0 for s, a in zip(samples, result, strict=True) if s.refused)


@settings(max_examples=200, deadline=None)
@given(samples=drafts)
def test_drafts_of_a_skill_are_centred_and_never_standardised(samples: list[DesignerSample]) -> None:
    result = designer_advantages(samples)
    for key in {(s.skill, s.round_index) for s in samples}:
        mine = [(s, a) for s, a in zip(samples, result, strict=True) if (s.skill, s.round_index) == key and not s.refused]
        if len(mine) > 1:
            mean = math.fsum(s.reward or 0.0 for s, _ in mine) / len(mine)
            assert [a.advantage for _, a in mine if a is not None] == pytest.approx(
                [(s.reward or 0.0) - mean for s, _ in mine], abs=1e-12
            )


@settings(max_examples=200, deadline=None)
@given(values=st.lists(rewards, min_size=2, max_size=6, unique=True), same_skill=st.booleans())
def test_the_designers_gradient_is_never_structurally_zero(values: list[float], same_skill: bool) -> None:
    """Drafts that earned differently get advantages, also where every skill has only one draft."""
    result = designer_advantages([draft(v, "a" if same_skill else f"skill{i}") for i, v in enumerate(values)])
    assert any(a is not None and a.advantage != 0.0 for a in result)


def test_a_lone_draft_is_compared_with_others_never_with_itself() -> None:
    (a, b) = designer_advantages([draft(0.5, "a"), draft(0.2, "b")])
    assert a is not None
    assert b is not None
    assert (a.advantage, a.baseline) == (pytest.approx(0.3), "round")
    assert (b.advantage, b.baseline) == (pytest.approx(-0.3), "round")
    (alone,) = designer_advantages([draft(0.5)], running={"a": 0.1})
    assert alone is not None
    assert (alone.advantage, alone.baseline) == (pytest.approx(0.4), "running")
    (first,) = designer_advantages([draft(0.5)])
    assert first is not None
    assert (first.advantage, first.baseline) == (0.5, "zero")


def test_rounds_are_not_mixed() -> None:
    result = designer_advantages([draft(0.0), draft(0.2), draft(0.8, round_index=1), draft(1.0, round_index=1)])
    assert [a.advantage for a in result if a is not None] == pytest.approx([-0.1, 0.1, -0.1, 0.1])


def test_an_admitted_draft_without_a_reward_gives_nothing() -> None:
    silent = DesignerSample("a", 0, None, refused=False, tokens=5)
    assert designer_advantages([silent, draft(0.5), draft(0.1)])[0] is None


def test_a_round_of_refusals_still_teaches() -> None:
    result = designer_advantages([draft(None), draft(None)])
    assert [(a.advantage, a.weight) for a in result if a is not None] == [(-1.0, 0.5), (-1.0, 0.5)]


@pytest.mark.parametrize(
    ("samples", "refused_advantage"),
    [
        ([draft(0.1)], 0.0),
        ([draft(0.1)], 0.5),
        ([draft(0.1, tokens=0)], -1.0),
        ([DesignerSample("a", 0, 0.3, refused=True, tokens=4)], -1.0),
    ],
)
def test_what_cannot_be_is_refused(samples: list[DesignerSample], refused_advantage: float) -> None:
    with pytest.raises(ValueError, match=r"must be negative|not a possible draft"):
        designer_advantages(samples, refused_advantage=refused_advantage)


def test_the_designers_weight_makes_up_for_its_rarity_up_to_a_cap() -> None:
    assert designer_weight(1000, 100, 4, 50.0) == 40.0
    assert designer_weight(10_000, 100, 8, 50.0) == 50.0
    assert designer_weight(0, 100, 4, 50.0) == 4.0, "a solved pool is when the designer must go on learning"
    assert designer_weight(1000, 0, 4, 50.0) == 0.0
    with pytest.raises(ValueError, match="not possible"):
        designer_weight(-1, 0, 4, 50.0)
