"""Packing: nothing lost, nothing doubled, shared prefixes once, budgets kept, and no order that matters."""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter

import pytest
import torch
from hypothesis import given, settings, strategies as st

from spade_agentic import LearnerError, Role, TrainSequence
from spade_agentic.learning.batches import ROLES, MicroBatch, check_batch, pack, pad, split_minibatches
from spade_agentic.learning.options import TorchOptions


def sequence(name: str, ids: list[int], mask: list[bool], **changes: object) -> TrainSequence:
    values = {
        "sequence_id": name, "role": Role.AGENT, "token_ids": tuple(ids), "mask": tuple(mask),
        "rollout_logprobs": tuple(-1.0 - 0.001 * i if m else 0.0 for i, m in enumerate(mask)), "advantage": 0.5,
    }  # fmt: skip
    return TrainSequence(**{**values, **changes})  # type: ignore[arg-type]


@st.composite
def batches(draw: st.DrawFn) -> list[TrainSequence]:
    """Sequences over two tokens, grown from common trunks, so that all kinds of sharing happen: also whole duplicates."""
    rng = random.Random(draw(st.integers(0, 10**9)))
    trunks = [[rng.randrange(2) for _ in range(rng.randrange(1, 60))] for _ in range(3)]
    batch = []
    for i in range(draw(st.integers(1, 12))):
        trunk = rng.choice(trunks)
        ids = trunk[: rng.randrange(1, len(trunk) + 1)] + [rng.randrange(2) for _ in range(rng.choice([0, 1, 5, 30]))]
        ids += [1]
        mask = [False] + [rng.random() < 0.3 for _ in ids[1:]]
        mask[rng.randrange(1, len(ids))] = True
        temperature = rng.choice([1.0, 0.6])
        batch.append(sequence(f"s{i}", ids, mask, role=rng.choice(ROLES), weight=rng.random(), temperature=temperature))
    return batch


def history(micro: MicroBatch, source: int) -> list[int]:
    """The tokens that a row position sees, oldest first, by the layout alone."""
    tokens = micro.token_ids.flatten().tolist()
    if micro.layout is None:
        width = micro.token_ids.shape[1]
        return tokens[source // width * width : source + 1]
    seen: list[int] = []
    for node in micro.layout.nodes:
        if node.start <= source < node.end:
            return seen + tokens[node.start : source + 1]
        if node.end <= source < node.subtree_end:
            seen += tokens[node.start : node.end]
    raise AssertionError(source)


def trained(batch: list[TrainSequence]) -> Counter[tuple[str, tuple[int, ...], int, float, float]]:
    return Counter(
        (s.sequence_id, s.token_ids[:i], s.token_ids[i], round(s.rollout_logprobs[i], 4), s.temperature)
        for s in batch for i, m in enumerate(s.mask) if m
    )


def found(micros: list[MicroBatch]) -> Counter[tuple[str, tuple[int, ...], int, float, float]]:
    return Counter(
        (m.sequence_ids[int(m.sequence[j])], tuple(history(m, int(m.source[j]))), int(m.target[j]),
         round(float(m.rollout_logprobs[j]), 4), round(float(m.temperature[j]), 6))
        for m in micros for j in range(m.trained_tokens)
    )


@settings(max_examples=150, deadline=None)
@given(batch=batches(), budget=st.integers(16, 400), share=st.booleans())
def test_every_trained_token_is_packed_once_behind_exactly_its_own_history(
    batch: list[TrainSequence], budget: int, share: bool
) -> None:
    assert found(pack(batch, budget, share=share)) == trained(batch)


@settings(max_examples=50, deadline=None)
@given(batch=batches(), budget=st.integers(16, 400))
def test_every_trained_token_is_padded_once_behind_exactly_its_own_history(batch: list[TrainSequence], budget: int) -> None:
    assert found(pad(batch, budget)) == trained(batch)


@settings(max_examples=100, deadline=None)
@given(batch=batches(), budget=st.integers(16, 400), share=st.booleans())
def test_positions_count_from_the_start_of_the_sequence(batch: list[TrainSequence], budget: int, share: bool) -> None:
    for micro in pack(batch, budget, share=share):
        for source in micro.source.tolist():
            assert int(micro.position_ids.flatten()[source]) == len(history(micro, source)) - 1


@settings(max_examples=100, deadline=None)
@given(batch=batches(), budget=st.integers(16, 400), share=st.booleans())
def test_a_row_keeps_the_token_budget_unless_one_sequence_alone_is_longer(
    batch: list[TrainSequence], budget: int, share: bool
) -> None:
    for micro in pack(batch, budget, share=share):
        assert micro.computed_tokens <= budget or len(micro.sequence_ids) == 1
    for micro in pad(batch, budget):
        assert micro.computed_tokens <= budget or len(micro.sequence_ids) == 1


@settings(max_examples=50, deadline=None)
@given(batch=batches(), budget=st.integers(16, 400), seed=st.integers(0, 100))
def test_the_order_of_the_batch_does_not_matter(batch: list[TrainSequence], budget: int, seed: int) -> None:
    shuffled = random.Random(seed).sample(batch, len(batch))
    for build in (pack, pad):
        for a, b in zip(build(batch, budget), build(shuffled, budget), strict=True):
            for field in dataclasses.fields(a):
                mine, theirs = getattr(a, field.name), getattr(b, field.name)
                assert torch.equal(mine, theirs) if isinstance(mine, torch.Tensor) else mine == theirs


def test_a_shared_prompt_is_computed_once_in_a_row() -> None:
    prompt = list(range(40))
    batch = [sequence(f"s{i}", [*prompt, 50 + i, 60], [False] * 40 + [True, True]) for i in range(5)]
    (shared,) = pack(batch, 1000)
    (alone,) = pack(batch, 1000, share=False)
    assert shared.computed_tokens == 40 + 5
    assert alone.computed_tokens == 5 * 41


def test_equal_plays_are_computed_once_and_counted_each() -> None:
    ids, mask = list(range(30)), [False] * 20 + [True] * 10
    (micro,) = pack([sequence(f"s{i}", ids, mask) for i in range(4)], 1000)
    assert micro.computed_tokens == 29
    assert micro.trained_tokens == 40


def test_tokens_behind_the_last_trained_one_are_not_computed() -> None:
    (micro,) = pack([sequence("s", list(range(30)), [False] * 5 + [True] * 3 + [False] * 22)], 1000)
    assert micro.token_ids.flatten().tolist() == list(range(7))


def test_a_group_is_not_cut_where_it_fits_the_next_row() -> None:
    groups = [[g] * 30 for g in range(3)]
    batch = [
        sequence(f"g{g}-{i}", [*groups[g], 50 + i, 60, 61], [False] * 30 + [True] * 3) for g in range(3) for i in range(4)
    ]
    rows = pack(batch, 64)
    assert [sorted({name[:2] for name in row.sequence_ids}) for row in rows] == [["g0"], ["g1"], ["g2"]]


@settings(max_examples=100, deadline=None)
@given(batch=batches(), parts=st.integers(1, 5), seed=st.integers(0, 99))
def test_minibatches_are_a_partition(batch: list[TrainSequence], parts: int, seed: int) -> None:
    order = random.Random(seed).sample(range(len(batch)), len(batch))
    result = split_minibatches(batch, parts, order)
    assert Counter(s.sequence_id for part in result for s in part) == Counter(s.sequence_id for s in batch)
    assert all(result)


def test_minibatches_share_every_roles_tokens_evenly_and_keep_groups_whole() -> None:
    batch = [
        sequence(f"{role}{i}", [1, 2, 3], [False, True, True], role=role, prefix_key=f"{role}{i // 2}", prefix_len=1)
        for role in ROLES for i in range(8)
    ]
    parts = split_minibatches(batch, 4, list(range(16)))
    for part in parts:
        assert Counter(s.role for s in part) == {Role.AGENT: 2, Role.DESIGNER: 2}
        assert all(n == 2 for n in Counter(s.prefix_key for s in part).values())


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({}, 1), ({"minibatches": 4}, 4), ({"minibatches": 400}, 100), ({"minibatch_sequences": 32}, 3),
        ({"minibatch_sequences": 500}, 1), ({"minibatch_tokens": 500}, 4),
    ],
)
def test_minibatch_sizes_are_given_in_parts_sequences_or_sampled_tokens(options: dict[str, int], parts: int) -> None:
    assert TorchOptions(**options).parts(100, 2000) == parts  # type: ignore[arg-type]


def test_two_ways_to_give_a_minibatch_size_are_refused() -> None:
    with pytest.raises(ValueError, match="give one of minibatches"):
        TorchOptions(minibatches=2, minibatch_tokens=100)


GOOD = sequence("s", [1, 2, 3], [False, True, True], rollout_logprobs=(0.0, -1.0, -2.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mask": (False, True)}, "3 ids, 2 mask entries"),
        ({"rollout_logprobs": (0.0, -1.0)}, "2 log-probs"),
        ({"mask": (False, False, False)}, "no sampled token"),
        ({"mask": (True, True, True)}, "nothing predicts"),
        ({"advantage": float("nan")}, "advantage nan"),
        ({"weight": float("inf")}, "weight inf"),
        ({"weight": -1.0}, "weight -1.0"),
        ({"temperature": 0.0}, "temperature 0.0"),
        ({"prefix_len": 4}, "prefix_len 4"),
        ({"rollout_logprobs": (0.0, -1.0, float("-inf"))}, "not finite, or positive"),
        ({"rollout_logprobs": (0.0, 0.5, -1.0)}, "not finite, or positive"),
    ],
)
def test_a_sequence_that_cannot_mean_what_it_says_is_refused_by_name(changes: dict[str, object], message: str) -> None:
    with pytest.raises(LearnerError, match=f"'s'.*{message}"):
        check_batch([dataclasses.replace(GOOD, **changes)])  # type: ignore[arg-type]


def test_an_empty_batch_a_doubled_id_and_a_wrong_prefix_key_are_refused() -> None:
    check_batch([GOOD])
    with pytest.raises(LearnerError, match="empty"):
        check_batch([])
    with pytest.raises(LearnerError, match="twice"):
        check_batch([GOOD, GOOD])
    keyed = dataclasses.replace(GOOD, prefix_key="k", prefix_len=1)
    other = dataclasses.replace(keyed, sequence_id="t", token_ids=(9, 2, 3))
    with pytest.raises(LearnerError, match=r"'t'.*does not begin like the others"):
        check_batch([keyed, other])


def test_packing_many_plays_costs_little() -> None:
    """Row sizes are computed anew for every sequence; that must stay far below the update itself."""
    rng = random.Random(0)
    prompts = [[rng.randrange(64) for _ in range(300)] for _ in range(64)]
    batch = [
        sequence(f"s{i}", [*prompts[i % 64], *(rng.randrange(64) for _ in range(150))], [False] * 300 + [True] * 150)
        for i in range(512)
    ]
    started = time.process_time()
    pack(batch, 16384)
    assert time.process_time() - started < 3.0
