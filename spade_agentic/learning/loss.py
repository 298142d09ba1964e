"""The policy loss, as pure functions on tensors of trained tokens. No model here: every backend calls the same code.

Per trained token, with log-probabilities at the temperature the token was sampled at (paper, section 3.4; the decoupled
objective of AReaL, arXiv 2505.24298)::

    ratio      = pi / pi_prox                      pi_prox: the policy at the start of the step, recomputed once
    importance = min(pi_prox / pi_rollout, cap)    detached; pi_rollout: what the engine sampled from
    loss       = -weight * importance * min(ratio * A, clip(ratio, 1 - low, 1 + high) * A) / normaliser
               + weight * kl_coef * (exp(r) - r - 1) / normaliser          r = log pi_reference - log pi

``normaliser`` is the number of trained tokens of the whole batch, so that micro-batches add up to exactly the batch's
per-token mean. A truncated play is a play: it stays, with its return of 0. ``weight`` is the role's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["LossConfig", "TokenRecord", "importance_weight", "low_variance_kl", "policy_loss", "summarise", "token_logprobs"]


@dataclass(frozen=True, slots=True)
class LossConfig:
    """``clip_low``, ``clip_high``: asymmetric clip of pi/pi_prox. ``is_cap``: cap of the importance weight.

    ``kl_coef``: weight of the KL to a reference; 0 means that there is none.
    """

    clip_low: float = 0.2
    clip_high: float = 0.28
    is_cap: float = 2.0
    kl_coef: float = 0.0


def token_logprobs(logits: Tensor, target: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of ``target`` ``[n]`` under ``softmax(logits / temperature)``, and that distribution's entropy.

    ``logits`` is ``[n, vocabulary]``, ``temperature`` ``[n]`` and positive. Both results are ``[n]``, in nats, and
    at least float32; the entropy is a measurement and carries no gradient.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if bool((temperature != 1.0).any()):  # one pass less over [n, vocabulary] where there is nothing to divide
        logits = logits / temperature[:, None]
    logprobs = torch.log_softmax(logits, dim=-1)
    with torch.no_grad():
        entropy = -torch.linalg.vecdot(logprobs.exp(), logprobs)
    return logprobs.gather(1, target[:, None])[:, 0], entropy


def importance_weight(prox: Tensor, rollout: Tensor, cap: float) -> Tensor:
    """``clamp(pi_prox / pi_rollout, 0, cap)``, without a gradient (truncated importance sampling)."""
    return (prox - rollout).detach().exp().clamp(0.0, cap)


def low_variance_kl(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Per-token estimate of KL(pi || reference) from samples of pi: ``exp(r) - r - 1 >= 0`` (Schulman's k3)."""
    r = reference.detach() - logprobs
    return r.exp() - r - 1.0


def policy_loss(
    logprobs: Tensor, *, prox: Tensor, rollout: Tensor, advantage: Tensor, weight: Tensor, normaliser: float,
    config: LossConfig, reference: Tensor | None = None,
) -> Tensor:
    """The loss of these trained tokens (module docstring): a scalar. All tensors are ``[n]``; only ``logprobs`` has a gradient.

    Raises ``ValueError`` where ``kl_coef`` is set and ``reference`` is not, or the normaliser is not positive.
    """
    if not normaliser > 0:
        raise ValueError(f"normaliser must be positive, not {normaliser}")
    ratio = (logprobs - prox.detach()).exp()
    clipped = ratio.clamp(1.0 - config.clip_low, 1.0 + config.clip_high)
    loss = -importance_weight(prox, rollout, config.is_cap) * torch.minimum(ratio * advantage, clipped * advantage)
    if config.kl_coef:
        if reference is None:
            raise ValueError("kl_coef is set, so the reference's log-probabilities are needed")
        loss = loss + config.kl_coef * low_variance_kl(logprobs, reference)
    return (weight * loss).sum() / normaliser


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """What one pass saw of its trained tokens, all ``[n]`` and detached; ``signal`` is ``d loss / d logprobs``."""

    role: Tensor
    logprobs: Tensor
    prox: Tensor
    rollout: Tensor
    advantage: Tensor
    entropy: Tensor
    signal: Tensor
    reference: Tensor | None = None


def summarise(records: Sequence[TokenRecord], roles: Sequence[str], config: LossConfig) -> dict[str, float]:
    """Flat metrics per role, ``role/name``; a role without trained tokens has only ``role/tokens`` = 0.

    ``ratio_*`` is pi_prox/pi_rollout: how far the trainer is from the engine before any update, 1 when they agree.
    ``mismatch_kl`` is KL(rollout || prox). ``update_ratio_mean`` is pi/pi_prox. ``truncated_share``: tokens whose
    importance weight was cut at the cap. ``clipped_share``: tokens whose gradient the clip took away. ``signal``: the sum
    of ``|d loss / d logprob|``; 0 means that nothing of this role was learned from.
    """
    fields = ("role", "logprobs", "prox", "rollout", "advantage", "entropy", "signal")
    all_of = {name: torch.cat([getattr(r, name).double() for r in records]) for name in fields}
    reference = [r.reference for r in records if r.reference is not None]
    if reference:
        assert len(reference) == len(records)
        all_of["reference"] = torch.cat(reference).double()
    metrics: dict[str, float] = {}
    for index, role in enumerate(roles):
        mine = all_of["role"] == index
        metrics[f"{role}/tokens"] = float(mine.sum())
        if mine.any():
            values = _of_role({name: tensor[mine] for name, tensor in all_of.items()}, config)
            metrics.update({f"{role}/{name}": value for name, value in values.items()})
    return metrics


def _of_role(t: Mapping[str, Tensor], config: LossConfig) -> dict[str, float]:
    log_ratio = t["prox"] - t["rollout"]
    ratio, update = log_ratio.exp(), (t["logprobs"] - t["prox"]).exp()
    ordered = ratio.sort().values
    gained = torch.where(t["advantage"] >= 0, update > 1.0 + config.clip_high, update < 1.0 - config.clip_low)
    metrics = {
        "ratio_mean": ratio.mean(),
        "ratio_min": ordered[0],
        **{f"ratio_p{q:02d}": ordered[round(q / 100 * (len(ordered) - 1))] for q in (1, 50, 99)},
        "ratio_max": ordered[-1],
        "mismatch_kl": (ratio - 1.0 - log_ratio).mean(),
        "truncated_share": (ratio > config.is_cap).double().mean(),
        "update_ratio_mean": update.mean(),
        "clipped_share": gained.double().mean(),
        "entropy": t["entropy"].mean(),
        "advantage_abs_mean": t["advantage"].abs().mean(),
        "signal": t["signal"].abs().sum(),
    }
    if "reference" in t:
        metrics["reference_kl"] = low_variance_kl(t["logprobs"], t["reference"]).mean()
    return {name: float(value) for name, value in metrics.items()}
