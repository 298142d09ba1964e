"""Attention over a packed row of prefix trees: every shared prefix is computed once, nothing is padded or masked.

A *row* is one long sequence of tokens in which several token sequences lie as trees. A node of a tree is a span of
tokens; its children continue it. The order is depth first, so that all descendants of a node follow it without a gap::

    [ prefix A | play 1 | play 2 | prefix A' of plays 3, 4 | play 3 | play 4 ] [ prefix B | ... ]

Every token attends to its own node up to itself, and to the whole of every ancestor. That is exactly what it would
attend to in its own sequence, so outputs and gradients equal those of the unshared computation; only the order of
floating-point additions differs.

The attention of a row is a list of dense calls without masks: one causal call per node, and one full call per node with
descendants (their queries, contiguous, against its keys). Calls that share queries are merged by their log-sum-exp
("online softmax", FlashAttention, arXiv 2205.14135). In the backward pass each call is given the *merged* output and
log-sum-exp; its probabilities are then already those of the whole softmax, and the gradients of the calls add up.

On a CPU the calls are torch's own flash kernel; elsewhere they are plain matrix products (:func:`_math_forward`), which
hold one call's scores in memory at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["PACKED_ATTENTION", "Node", "TreeLayout", "packed_attention", "tree_attention"]

PACKED_ATTENTION = "spade_packed"
"""The name under which :func:`packed_attention` is known to transformers' ``AttentionInterface``."""


@dataclass(frozen=True, slots=True)
class Node:
    """Rows ``[start, end)`` are the node's own tokens, ``[end, subtree_end)`` those of all its descendants."""

    start: int
    end: int
    subtree_end: int


@dataclass(frozen=True, slots=True)
class TreeLayout:
    """The trees of one packed row, in depth-first order. Together the nodes cover ``[0, tokens)`` once."""

    nodes: tuple[Node, ...]
    tokens: int

    def __post_init__(self) -> None:
        position = 0
        for node in self.nodes:
            assert position == node.start < node.end <= node.subtree_end <= self.tokens, node
            position = node.end
        assert position == self.tokens, (position, self.tokens)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What sums are kept in: float32, or float64 where the inputs are."""
    return torch.promote_types(dtype, torch.float32)


def _scores(q: Tensor, k: Tensor, causal: bool, scale: float) -> Tensor:
    scores = (q @ k.transpose(-1, -2)).to(_wide(q.dtype)) * scale
    if not causal:
        return scores
    keep = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    return scores.masked_fill(~keep, float("-inf"))


def _math_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    scores = _scores(q, k, causal, scale)
    lse = scores.logsumexp(-1)
    return ((scores - lse[..., None]).exp().to(v.dtype)) @ v, lse


def _math_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    probs = (_scores(q, k, causal, scale) - lse[..., None]).exp()
    grad_v = probs.to(grad.dtype).transpose(-1, -2) @ grad
    delta = (grad.to(probs.dtype) * out.to(probs.dtype)).sum(-1, keepdim=True)
    grad_scores = (probs * ((grad @ v.transpose(-1, -2)).to(probs.dtype) - delta) * scale).to(q.dtype)
    return grad_scores @ k, grad_scores.transpose(-1, -2) @ q, grad_v


def _flash_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)
    return out, lse


def _flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, q, k, v, out, lse, 0.0, causal, scale=scale
    )
    return grads[0], grads[1], grads[2]


class _TreeAttention(torch.autograd.Function):
    """Inputs are ``[kv_heads, repeats, tokens, head_dim]`` queries and ``[kv_heads, 1, tokens, head_dim]`` keys, values."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, nodes: Sequence[Node], scale: float, flash: bool) -> Tensor:
        attend = _flash_forward if flash else _math_forward
        kv_heads, repeats, tokens, head_dim = q.shape
        keys, values = k.expand(-1, repeats, -1, -1), v.expand(-1, repeats, -1, -1)
        # The buffer is laid out as [tokens, kv_heads, repeats, head_dim], which is what the output projection reads.
        out = q.new_empty(tokens, kv_heads, repeats, head_dim).permute(1, 2, 0, 3)
        lse = torch.empty(tokens, kv_heads, repeats, dtype=_wide(q.dtype), device=q.device).permute(1, 2, 0)
        for node in nodes:
            own = slice(node.start, node.end)
            out[:, :, own], lse[:, :, own] = attend(q[:, :, own], keys[:, :, own], values[:, :, own], True, scale)
        for node in nodes:
            if node.end == node.subtree_end:
                continue
            own, below = slice(node.start, node.end), slice(node.end, node.subtree_end)
            part, part_lse = attend(q[:, :, below], keys[:, :, own], values[:, :, own], False, scale)
            _merge(out[:, :, below], lse[:, :, below], part, part_lse)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.nodes, ctx.scale, ctx.flash = nodes, scale, flash
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        attend = _flash_backward if ctx.flash else _math_backward
        q, k, v, out, lse = ctx.saved_tensors
        (grad,) = grads
        repeats = q.shape[1]
        keys, values = k.expand(-1, repeats, -1, -1), v.expand(-1, repeats, -1, -1)
        grad_q, grad_k, grad_v = _like(q), _like(k), _like(v)
        for node in ctx.nodes:
            own = slice(node.start, node.end)
            dq, dk, dv = attend(
                grad[:, :, own], q[:, :, own], keys[:, :, own], values[:, :, own], out[:, :, own], lse[:, :, own],
                True, ctx.scale,
            )
            grad_q[:, :, own] = dq
            torch.sum(dk, 1, keepdim=True, out=grad_k[:, :, own])
            torch.sum(dv, 1, keepdim=True, out=grad_v[:, :, own])
        for node in ctx.nodes:
            if node.end == node.subtree_end:
                continue
            own, below = slice(node.start, node.end), slice(node.end, node.subtree_end)
            dq, dk, dv = attend(
                grad[:, :, below], q[:, :, below], keys[:, :, own], values[:, :, own], out[:, :, below],
                lse[:, :, below], False, ctx.scale,
            )
            grad_q[:, :, below] += dq
            grad_k[:, :, own] += dk.sum(1, keepdim=True)
            grad_v[:, :, own] += dv.sum(1, keepdim=True)
        return grad_q, grad_k, grad_v, None, None, None


def _like(x: Tensor) -> Tensor:
    """An empty tensor like ``x`` that lies as [tokens, heads, head_dim] in memory, as the projections do."""
    a, b, tokens, d = x.shape
    return x.new_empty(tokens, a, b, d).permute(1, 2, 0, 3)


def _merge(out: Tensor, lse: Tensor, part: Tensor, part_lse: Tensor) -> None:
    """Add attention over further keys to ``out`` and ``lse``, in place."""
    total = torch.logaddexp(lse, part_lse)
    out.mul_((lse - total).exp()[..., None].to(out.dtype))
    out.addcmul_(part, (part_lse - total).exp()[..., None].to(out.dtype))
    lse.copy_(total)


def tree_attention(
    q: Tensor, k: Tensor, v: Tensor, layout: TreeLayout, *, scale: float | None = None, flash: bool | None = None
) -> Tensor:
    """Attention of one packed row.

    ``q`` is ``[heads, tokens, head_dim]``; ``k`` and ``v`` are ``[kv_heads, tokens, head_dim]``, where ``heads`` is a
    multiple of ``kv_heads`` (grouped-query attention). Returns ``[tokens, heads, head_dim]``. ``flash`` defaults to true
    on a CPU. Differentiable once.
    """
    heads, tokens, head_dim = q.shape
    kv_heads = k.shape[0]
    assert heads % kv_heads == 0
    assert tokens == layout.tokens == k.shape[1] == v.shape[1]
    q, k = q.to(v.dtype), k.to(v.dtype)  # under autocast, rotary embeddings give back float32
    out = _TreeAttention.apply(  # type: ignore[no-untyped-call]
        q.unflatten(0, (kv_heads, heads // kv_heads)), k[:, None], v[:, None], layout.nodes,
        head_dim**-0.5 if scale is None else scale, q.device.type == "cpu" if flash is None else flash,
    )
    result: Tensor = out.permute(2, 0, 1, 3).flatten(1, 2)
    return result


def packed_attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *,
    scaling: float | None = None, dropout: float = 0.0, tree_layout: TreeLayout | None = None, **extra: Any,
) -> tuple[Tensor, None]:
    """:func:`tree_attention` in the form that transformers' ``AttentionInterface`` asks for.

    The model is called with ``tree_layout=...``; it hands unknown keywords down to its attention. Whatever this kernel
    does not compute (sliding windows, soft caps, sinks, position biases) is refused rather than left out.
    """
    unknown = [name for name in ("sliding_window", "softcap", "s_aux", "position_bias") if extra.get(name) is not None]
    if unknown or dropout or attention_mask is not None or query.shape[0] != 1 or tree_layout is None:
        raise ValueError(
            f"packed attention needs one row, its tree_layout, and neither mask nor dropout; "
            f"got {tuple(query.shape)}, dropout {dropout}, extras {unknown}"
        )
    return tree_attention(query[0], key[0], value[0], tree_layout, scale=scaling)[None], None
