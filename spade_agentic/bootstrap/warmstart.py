"""Supervised warm start: next-token training on demonstrations, in length-sorted padded batches.

Sampled tokens (the demonstrator's) carry weight 1; the tokens of prompts and observations carry ``context_weight``:
predicting them is no goal, but it teaches the model early that values recur, which is what copying needs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F
from transformers import Qwen3Config, Qwen3ForCausalLM

__all__ = ["Sample", "TinyShape", "make_model", "train"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One demonstration: token ids, and which of them the demonstrator chose."""

    token_ids: Sequence[int]
    mask: Sequence[bool]


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
        tie_word_embeddings=True,
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


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


def _tensors(batch: list[Sample], context_weight: float) -> tuple[torch.Tensor, torch.Tensor]:
    width = math.ceil(max(len(s.token_ids) for s in batch) / 32) * 32
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    weights = torch.zeros(len(batch), width)
    for row, sample in enumerate(batch):
        n = len(sample.token_ids)
        ids[row, :n] = torch.tensor(sample.token_ids)
        mask = torch.tensor(sample.mask, dtype=torch.float32)
        weights[row, :n] = mask + (1 - mask) * context_weight
    return ids, weights[:, 1:]


def train(
    model: Qwen3ForCausalLM,
    samples: Iterator[Sample],
    *,
    steps: int,
    seed: int,
    token_budget: int = 8192,
    learning_rate: float = 3e-3,
    warmup_steps: int = 50,
    final_fraction: float = 0.1,
    context_weight: float = 0.1,
    pool: int = 512,
    report: Callable[[int, dict[str, float]], None] | None = None,
    report_every: int = 50,
) -> None:
    """Train ``model`` in place for ``steps`` AdamW steps with linear warm-up and cosine decay."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    model.train()
    start, tokens, running = time.monotonic(), 0, 0.0
    for step, batch in zip(range(steps), _batches(samples, token_budget, pool, generator), strict=False):
        progress = step / max(1, steps - 1)
        cosine = final_fraction + (1 - final_fraction) * 0.5 * (1 + math.cos(math.pi * progress))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, (step + 1) / warmup_steps) * cosine
        ids, weights = _tensors(batch, context_weight)
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        losses = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        loss = (losses * weights).sum() / weights.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tokens += sum(len(s.token_ids) for s in batch)
        sampled = weights == 1
        running = 0.95 * running + 0.05 * float(losses.detach()[sampled].mean()) if step else float(losses.detach()[sampled].mean())
        if report and (step + 1) % report_every == 0:
            report(step + 1, {"loss": running, "tokens_per_s": tokens / (time.monotonic() - start)})
    model.eval()
