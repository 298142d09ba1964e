"""Attention over prefix trees is attention: same outputs, same gradients, whatever the tree."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from spade_agentic.learning.attention import Node, TreeLayout, packed_attention, tree_attention


def random_layout(seed: int) -> TreeLayout:
    """One to three trees of depth one to four with up to three children a node."""
    rng = random.Random(seed)
    nodes: list[Node] = []

    def grow(start: int, depth: int) -> int:
        end = start + rng.randrange(1, 7)
        index = len(nodes)
        nodes.append(Node(start, end, end))
        position = end
        for _ in range(rng.randrange(0, 4) if depth < 3 else 0):
            position = grow(position, depth + 1)
        nodes[index] = Node(start, end, position)
        return position

    position = 0
    for _ in range(rng.randrange(1, 4)):
        position = grow(position, 0)
    return TreeLayout(tuple(nodes), position)


def allowed(layout: TreeLayout) -> Tensor:
    """``[query, key]``: own node up to itself, and every ancestor."""
    keep = torch.zeros(layout.tokens, layout.tokens, dtype=torch.bool)
    for node in layout.nodes:
        keep[node.start : node.end, node.start : node.end] = True
        keep[node.end : node.subtree_end, node.start : node.end] = True
    return keep.tril()


def dense(q: Tensor, k: Tensor, v: Tensor, layout: TreeLayout) -> Tensor:
    repeats = q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(repeats, 0), v.repeat_interleave(repeats, 0)
    scores = (q @ k.transpose(1, 2)) * q.shape[-1] ** -0.5
    return (scores.masked_fill(~allowed(layout), float("-inf")).softmax(-1) @ v).transpose(0, 1)


def inputs(layout: TreeLayout, seed: int, heads: int = 4, kv_heads: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(heads, layout.tokens, 8), (kv_heads, layout.tokens, 8), (kv_heads, layout.tokens, 8)]
    return [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]


@pytest.mark.parametrize("flash", [False, True])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_tree_attention_equals_masked_attention_in_outputs_and_gradients(flash: bool, seed: int) -> None:
    layout = random_layout(seed)
    ours, reference = inputs(layout, seed), inputs(layout, seed)
    out = tree_attention(*ours, layout, flash=flash)
    expected = dense(*reference, layout)
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    out.backward(upstream)
    expected.backward(upstream)
    for mine, theirs in zip(ours, reference, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("flash", [False, True])
def test_the_gradient_of_tree_attention_is_that_of_finite_differences(flash: bool) -> None:
    layout = TreeLayout((Node(0, 3, 9), Node(3, 5, 8), Node(5, 8, 8), Node(8, 9, 9)), 9)
    q, k, v = inputs(layout, 0)
    assert torch.autograd.gradcheck(lambda *qkv: tree_attention(*qkv, layout, flash=flash), (q, k, v))


@pytest.mark.parametrize("flash", [False, True])
def test_scores_that_overflow_an_exponential_stay_finite(flash: bool) -> None:
    layout = TreeLayout((Node(0, 3, 7), Node(3, 5, 5), Node(5, 7, 7)), 7)
    q, k, v = (x.detach().float() for x in inputs(layout, 0))
    out = tree_attention(q * 300, k * 300, v, layout, flash=flash)
    assert bool(torch.isfinite(out).all())
    torch.testing.assert_close(out, dense(q * 300, k * 300, v, layout), rtol=1e-3, atol=1e-3)


def test_sibling_plays_do_not_see_each_other() -> None:
    layout = TreeLayout((Node(0, 4, 8), Node(4, 6, 6), Node(6, 8, 8)), 8)
    q, k, v = inputs(layout, 1)
    before = tree_attention(q, k, v, layout)
    changed = v.detach().clone()
    changed[:, 4:6] += 100.0
    after = tree_attention(q, k, changed, layout)
    assert torch.equal(before[6:], after[6:])
    assert torch.equal(before[:4], after[:4])
    assert not torch.equal(before[4:6], after[4:6])


def test_nodes_that_leave_a_gap_are_refused() -> None:
    with pytest.raises(AssertionError):
        TreeLayout((Node(0, 2, 2), Node(3, 4, 4)), 4)


@pytest.mark.parametrize(
    "extra", [{"sliding_window": 8}, {"softcap": 30.0}, {"s_aux": 1}, {"dropout": 0.1}, {"tree_layout": None}]
)
def test_what_the_kernel_does_not_compute_is_refused(extra: dict[str, object]) -> None:
    layout = TreeLayout((Node(0, 4, 4),), 4)
    q, k, v = (x[None] for x in inputs(layout, 0))
    arguments: dict[str, object] = {"tree_layout": layout, **extra}
    with pytest.raises(ValueError, match="packed attention needs"):
        packed_attention(torch.nn.Module(), q, k, v, None, **arguments)  # type: ignore[arg-type]
