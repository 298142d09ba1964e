"""Supervised warm start: next-token training on demonstrations, in length-sorted padded batches.

Sampled tokens (the demonstrator's) carry weight 1, and numbers and names, which it copies, ``value_weight``; the tokens of
prompts and observations carry ``context_weight``: predicting them is no goal, but it teaches early that values recur.

A transformer of this size takes thousands of steps to find out by itself that the token before a match is worth knowing
(the first half of an induction head; Olsson et al. 2022), and as long to make a head copy what it attends to, without which
nothing rewards attending to it. :func:`copying_heads` gives a new model such heads. They are ordinary weights that training
goes on to change; docs/spade-tiny.md says what happened without them. Matrices are trained by Muon (Jordan et al. 2024),
everything else by AdamW.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch.nn import functional as F
from transformers import Qwen3Config, Qwen3ForCausalLM

from .muon import Float32Muon

__all__ = [
    "DECISIONS", "DECISIONS_AGAIN", "MECHANICS", "Sample", "Schedule", "Target", "TinyShape", "copying_heads", "liken",
    "make_model", "train",
]  # fmt: skip


class Target(NamedTuple):
    """That the token at ``position`` was to be ``token`` with probability ``share``."""

    position: int
    token: int
    share: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One demonstration: token ids, which of them the demonstrator chose, and which of those are copied values.

    ``targets`` are all tokens that might have stood where the demonstrator had a choice. The model learns these
    probabilities, not the throw of the dice: the same in expectation, with much less noise.
    """

    token_ids: Sequence[int]
    mask: Sequence[bool]
    values: Sequence[bool]
    targets: Sequence[Target] = ()


@dataclass(frozen=True, slots=True)
class TinyShape:
    """The architecture of ``spade-tiny``; head_dim 32 and two key/value heads also suit SGLang and tensor parallelism."""

    hidden_size: int = 128
    layers: int = 4
    intermediate_size: int = 384
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    context_tokens: int = 2048
    rope_theta: float = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast. Rates rise over ``warmup_steps`` and fall along a cosine to ``final_fraction``."""

    steps: int
    tokens_per_step: int = 6144
    muon_rate: float = 0.01
    copying_rate: float = 0.001
    """Muon's rate for the attention of the layers that start with copying heads."""
    adamw_rate: float = 3e-3
    warmup_steps: int = 30
    final_fraction: float = 0.05
    context_weight: float = 0.1
    context_steps: int = 300
    """For this long, tokens of prompts and observations count too: it teaches early that values recur."""
    value_weight: float = 3.0
    max_grad_norm: float = 1.0

    def factor(self, step: int) -> float:
        """The share of the full rates at ``step`` (from 0)."""
        cosine = 0.5 * (1 + math.cos(math.pi * step / max(1, self.steps - 1)))
        return min(1.0, (step + 1) / self.warmup_steps) * (self.final_fraction + (1 - self.final_fraction) * cosine)


MECHANICS = Schedule(steps=3000, copying_rate=0.002)
"""From nothing, on demonstrations that decide right."""
DECISIONS = Schedule(
    steps=800, muon_rate=0.006, copying_rate=0.0015, adamw_rate=2e-3, context_steps=0, value_weight=1.0
)  # fmt: skip
"""Afterwards, on demonstrations that decide as they please where they have no hint."""
DECISIONS_AGAIN = replace(DECISIONS, steps=400)
"""The same with the rates raised once more (a warm restart, arXiv 1608.03983): one descent leaves choices that are to be
open on the right action too often, and hints that are followed too seldom."""


def make_model(shape: TinyShape, vocab_size: int, *, eos_token_id: int, pad_token_id: int) -> Qwen3ForCausalLM:
    """A freshly initialised Qwen3 model of this shape; ``vocab_size`` is rounded up to a multiple of 4."""
    config = Qwen3Config(
        vocab_size=math.ceil(vocab_size / 4) * 4,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.context_tokens,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=True,
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    copying_heads(model, torch.Generator().manual_seed(torch.initial_seed() % 2**63))
    return model


LOOK_BACK: Mapping[int, tuple[int, int]] = {0: (1, 2), 1: (2, 5)}
"""Per layer, the distances of its two look-back heads: far enough for ``"id": "Savings57", "balance": 63``."""
INDUCTION_LAYER = 2
POINTER_LAYER = 3
"""Its first heads copy whatever they attend to; what that is, they are to learn."""

_SHARPNESS = 2.5
_FREQUENCIES = 4
_SLOWEST = 9
"""Rotary frequencies so slow that content can be compared over a whole prompt."""
_EMBEDDING_STD = 0.2
"""Ten times Qwen3's, so that the first steps of the optimizers do not wipe out what the copying heads hold."""
_WRITE = 1.0
_COPY = 16.0
_POINT = 8.0
_LIKENESS = 0.7
_OUTPUT_SCALE = 0.6
"""Of the last norm: makes the copied token the likeliest, without certainty where there is nothing to copy."""


@torch.no_grad()
def copying_heads(model: Qwen3ForCausalLM, generator: torch.Generator) -> None:
    """Give a new model the two halves of an induction head (Elhage et al. 2021; Olsson et al. 2022), and heads that copy.

    In the layers of :data:`LOOK_BACK` the heads of the first key/value group attend a fixed distance back and write what
    stood there into subspaces of the residual stream. In :data:`INDUCTION_LAYER` the heads of the first group look for
    positions that follow a token like the present one, and write what stands there towards the output. In
    :data:`POINTER_LAYER` those heads copy too, from wherever training sends them. Channel 0 is made the same for every
    token; the subspaces are parts of one random orthonormal basis of the other channels, so that what a head reads is not
    what another has written.
    """
    config = model.config
    dim, hidden = config.head_dim, config.hidden_size
    assert hidden >= 4 * dim, f"four subspaces of {dim} do not fit a hidden size of {hidden}"
    model.model.embed_tokens.weight.normal_(std=_EMBEDDING_STD, generator=generator)
    model.model.embed_tokens.weight[:, 0] = 6 * _EMBEDDING_STD
    model.model.norm.weight.fill_(_OUTPUT_SCALE)
    for block in model.model.layers:  # every other head and feed-forward layer starts by adding nothing
        block.self_attn.o_proj.weight.zero_()
        block.mlp.down_proj.weight.zero_()
    basis = torch.zeros(hidden, hidden)
    basis[: hidden - 1, 1:] = torch.linalg.qr(torch.randn(hidden - 1, hidden - 1, generator=generator)).Q
    content, previous, earlier, copied = (basis[i * dim : (i + 1) * dim] for i in range(4))
    for layer, distances in LOOK_BACK.items():
        written = (previous, earlier) if layer == min(LOOK_BACK) else (earlier, earlier)
        _look_back(model, layer, distances, content, written)
    _follow(model, INDUCTION_LAYER, content, previous, copied)
    _point(model, POINTER_LAYER, content)


def _look_back(
    model: Qwen3ForCausalLM, layer: int, distances: tuple[int, int], content: torch.Tensor, written: Sequence[torch.Tensor]
) -> None:
    """Set two heads that read ``content`` at ``distances`` back and write it into the subspaces ``written``.

    Queries and keys are made from channel 0 alone, in the fastest rotary frequencies, and the query is turned by the
    distance, so that their product peaks exactly there whatever the content.
    """
    config, attention = model.config, model.model.layers[layer].self_attn
    dim, half = config.head_dim, config.head_dim // 2
    theta = model.model.rotary_emb.inv_freq[:_FREQUENCIES].double()
    assert len(distances) == config.num_attention_heads // config.num_key_value_heads
    attention.k_norm.weight.fill_(_SHARPNESS)
    attention.q_norm.weight.fill_(_SHARPNESS)
    attention.k_proj.weight[:dim].zero_()
    attention.k_proj.weight[:_FREQUENCIES, 0] = 1.0
    attention.v_proj.weight[:dim] = content
    for head, distance in enumerate(distances):
        start = head * dim
        attention.q_proj.weight[start : start + dim].zero_()
        attention.q_proj.weight[start : start + _FREQUENCIES, 0] = torch.cos(distance * theta).float()
        attention.q_proj.weight[start + half : start + half + _FREQUENCIES, 0] = -torch.sin(distance * theta).float()
        attention.o_proj.weight[:, start : start + dim] = _WRITE * written[head].T


def _follow(
    model: Qwen3ForCausalLM, layer: int, content: torch.Tensor, previous: torch.Tensor, copied: torch.Tensor
) -> None:
    """Make the first group's heads attend where the token before resembles the present one, and copy what they find."""
    config, attention = model.config, model.model.layers[layer].self_attn
    dim, half = config.head_dim, config.head_dim // 2
    slow = [*range(half - _SLOWEST, half), *range(dim - _SLOWEST, dim)]
    attention.k_norm.weight.fill_(_SHARPNESS)
    attention.q_norm.weight.fill_(_SHARPNESS)
    attention.k_proj.weight[:dim].zero_()
    attention.k_proj.weight[slow] = previous[slow]
    attention.v_proj.weight[:dim] = copied
    for head in range(config.num_attention_heads // config.num_key_value_heads):
        start = head * dim
        attention.q_proj.weight[start : start + dim].zero_()
        attention.q_proj.weight[[start + index for index in slow]] = content[slow]
        attention.o_proj.weight[:, start : start + dim] = _COPY * copied.T


def _point(model: Qwen3ForCausalLM, layer: int, content: torch.Tensor) -> None:
    """Make the first group's heads copy what they attend to: words of the request that no induction leads to."""
    config, attention = model.config, model.model.layers[layer].self_attn
    dim = config.head_dim
    attention.v_proj.weight[:dim] = content
    for head in range(config.num_attention_heads // config.num_key_value_heads):
        attention.o_proj.weight[:, head * dim : (head + 1) * dim] = _POINT * content.T


@torch.no_grad()
def liken(model: Qwen3ForCausalLM, pairs: Iterable[tuple[int, int]]) -> None:
    """Let the second token of each pair begin with an embedding close to that of the first, so that copying one proposes
    the other: a request says ``savings``, the id of the account is ``Savings57``."""
    embedding = model.model.embed_tokens.weight
    for first, second in pairs:
        embedding[second, 1:] = _LIKENESS * embedding[first, 1:] + math.sqrt(1 - _LIKENESS**2) * embedding[second, 1:]


def _batches(samples: Iterator[Sample], token_budget: int, pool: int, generator: torch.Generator) -> Iterator[list[Sample]]:
    """Batches of about ``token_budget`` padded tokens, of similar length, in random order within every ``pool`` samples."""
    while True:
        drawn = sorted((next(samples) for _ in range(pool)), key=lambda s: len(s.token_ids))
        batches: list[list[Sample]] = []
        current: list[Sample] = []
        for sample in drawn:
            if current and (len(current) + 1) * len(sample.token_ids) > token_budget:
                batches.append(current)
                current = []
            current.append(sample)
        batches.append(current)
        for index in torch.randperm(len(batches), generator=generator).tolist():
            yield batches[index]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Ids ``[rows, width]``; loss weights and mask of tokens 1 to the end, ``[rows, width - 1]``; and the open tokens.

    ``places`` (flat indices into ``[rows, width - 1]``), ``tokens`` and ``shares`` have one entry per target.
    """

    ids: torch.Tensor
    weights: torch.Tensor
    sampled: torch.Tensor
    places: torch.Tensor
    tokens: torch.Tensor
    shares: torch.Tensor


def _tensors(batch: list[Sample], schedule: Schedule, context_weight: float) -> _Batch:
    width = math.ceil(max(len(s.token_ids) for s in batch) / 32) * 32
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    weights = torch.zeros(len(batch), width)
    sampled = torch.zeros(len(batch), width, dtype=torch.bool)
    for row, sample in enumerate(batch):
        n = len(sample.token_ids)
        ids[row, :n] = torch.tensor(sample.token_ids)
        sampled[row, :n] = torch.tensor(sample.mask)
        weights[row, :n] = context_weight
        weights[row][sampled[row]] = 1.0
        weights[row, :n][torch.tensor(sample.values)] = schedule.value_weight
    targets = [(row * (width - 1) + t.position - 1, t.token, t.share) for row, s in enumerate(batch) for t in s.targets]
    places, tokens, shares = zip(*targets, strict=True) if targets else ((), (), ())
    return _Batch(
        ids, weights[:, 1:], sampled[:, 1:], torch.tensor(places, dtype=torch.long), torch.tensor(tokens, dtype=torch.long),
        torch.tensor(shares, dtype=torch.float32),
    )  # fmt: skip


def _losses(model: Qwen3ForCausalLM, batch: _Batch) -> torch.Tensor:
    """Cross-entropy in nats of every token 1 to the end, ``[rows, width - 1]``; zero where its weight is."""
    counted = batch.weights > 0  # logits are half of the work: only where they are wanted
    hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state[:, :-1]
    logits = model.lm_head(hidden[counted])
    losses = torch.zeros(batch.weights.numel())
    losses[counted.flatten()] = F.cross_entropy(logits, batch.ids[:, 1:][counted], reduction="none")
    if len(batch.places):
        open_places, inverse = batch.places.unique(return_inverse=True)
        row_of = counted.flatten().cumsum(0) - 1
        log_probs = logits[row_of[open_places]].log_softmax(-1)[inverse, batch.tokens]
        losses = losses.index_fill(0, open_places, 0.0).index_add(0, batch.places, -batch.shares * log_probs)
    return losses.view_as(batch.weights)


def _optimizers(model: Qwen3ForCausalLM, schedule: Schedule) -> list[tuple[torch.optim.Optimizer, float]]:
    matrices = {name: p for name, p in model.model.layers.named_parameters() if p.ndim == 2}
    prepared = [p for name, p in matrices.items() if "self_attn" in name and int(name.split(".")[0]) <= POINTER_LAYER]
    given, chosen = {id(p) for p in prepared}, {id(p) for p in matrices.values()}
    others = [p for p in model.parameters() if id(p) not in chosen]
    groups = [([p for p in matrices.values() if id(p) not in given], schedule.muon_rate), (prepared, schedule.copying_rate)]
    optimizers: list[tuple[torch.optim.Optimizer, float]] = [(Float32Muon(group, lr=rate), rate) for group, rate in groups]
    adamw = torch.optim.AdamW(others, lr=schedule.adamw_rate, betas=(0.9, 0.95), weight_decay=0.0)
    return [*optimizers, (adamw, schedule.adamw_rate)]


def train(
    model: Qwen3ForCausalLM,
    samples: Iterator[Sample],
    schedule: Schedule,
    *,
    seed: int,
    pool: int = 256,
    report: Callable[[int, dict[str, float]], None] | None = None,
) -> float:
    """Train ``model`` in place; returns the running loss of the demonstrator's tokens, in nats. ``report`` sees every step."""
    generator = torch.Generator().manual_seed(seed)
    optimizers = _optimizers(model, schedule)
    model.train()
    start, tokens, running = time.monotonic(), 0, float("nan")
    for step, batch in zip(range(schedule.steps), _batches(samples, schedule.tokens_per_step, pool, generator), strict=False):
        tensors = _tensors(batch, schedule, schedule.context_weight if step < schedule.context_steps else 0.0)
        losses = _losses(model, tensors)
        loss = (losses * tensors.weights).sum() / tensors.weights.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), schedule.max_grad_norm)
        for optimizer, rate in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * schedule.factor(step)
            optimizer.step()
        model.zero_grad(set_to_none=True)
        tokens += sum(len(s.token_ids) for s in batch)
        present = float(losses.detach()[tensors.sampled].mean())
        running = present if math.isnan(running) else 0.95 * running + 0.05 * present
        if report:
            report(step + 1, {"loss": running, "tokens_per_s": tokens / (time.monotonic() - start)})
    model.eval()
    return running
