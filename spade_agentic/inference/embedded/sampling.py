"""The sampler: one uniform number per (seed, token index), and inverse-transform sampling over the whole batch.

A request's randomness is a pure function of its seed and of how many tokens it has sampled, so neighbours in the batch,
arrival order and restarts cannot change it. The function is two rounds of the SplitMix64 finaliser (Steele, Lea and Flood,
OOPSLA 2014) over 64-bit integers, vectorised with numpy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["SamplerInput", "sample", "uniform"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SALT = np.uint64(0xD1B54A32D192ED03)
_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> _S30)) * _A
    x = (x ^ (x >> _S27)) * _B
    return x ^ (x >> _S31)


def uniform(seeds: npt.NDArray[np.uint64], indices: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1) with 53 random bits, one per ``(seed, index)`` pair."""
    bits = _mix(_mix(seeds + _SALT) + (indices.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
    return (bits >> _S11).astype(np.float64) * 2.0**-53


@dataclass(frozen=True, slots=True)
class SamplerInput:
    """Per-row sampling parameters of a batch of ``n`` rows, all ``[n]``.

    ``temperature`` is 1 where ``greedy`` is true. ``limited`` lists the rows with a top-k (0: none) or top-p (1: none).
    """

    temperature: Tensor
    greedy: Tensor
    any_greedy: bool
    top_k: Tensor
    top_p: Tensor
    limited: Tensor | None


def sample(logits: Tensor, params: SamplerInput, noise: npt.NDArray[np.float64]) -> tuple[Tensor, Tensor]:
    """One token per row: ids ``[n]`` (int64) and log-probabilities ``[n]`` (float32).

    The log-probability is that of the distribution drawn from: after temperature, and renormalised after top-k and top-p
    in rows that set them. A greedy row reports its argmax under temperature 1. A row whose logits are not finite gets a
    log-probability that is not finite either, which the caller must check.
    """
    logprobs = torch.log_softmax(logits / params.temperature[:, None], dim=-1)
    if params.limited is not None:
        rows = params.limited
        logprobs[rows] = _restrict(logprobs[rows], params.top_k[rows], params.top_p[rows])
    cumulative = torch.cumsum(logprobs.exp(), dim=-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    # Below the total even after rounding: then `right` finds the first entry above the draw, never one of probability 0.
    draw = torch.minimum(torch.from_numpy(noise)[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(cumulative, draw, right=True).squeeze(-1).clamp_(max=logits.shape[-1] - 1)
    if params.any_greedy:
        tokens = torch.where(params.greedy, logits.argmax(dim=-1), tokens)
    return tokens, logprobs.gather(1, tokens[:, None]).squeeze(1)


def _restrict(logprobs: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Log-probabilities after top-k, then top-p over what is left, renormalised; -inf outside.

    As in SGLang, a token stays while the mass before it is at most ``top_p``; the most likely token always stays.
    """
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logprobs.shape[-1])
    keep = (rank < top_k[:, None]) | (top_k <= 0)[:, None]
    ordered = ordered.masked_fill(~keep, float("-inf"))
    mass = ordered.exp().to(torch.float64)
    mass = mass / mass.sum(dim=-1, keepdim=True)
    keep &= (mass.cumsum(dim=-1) - mass) <= top_p[:, None]
    keep[:, 0] = True
    ordered = torch.log_softmax(ordered.masked_fill(~keep, float("-inf")), dim=-1)
    return torch.empty_like(logprobs).scatter_(1, order, ordered)
