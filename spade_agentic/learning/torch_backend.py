"""The ``torch`` learner: one process, on a CPU or one GPU. What a step does is in :meth:`TorchLearner.step`."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import torch
from torch import Tensor

from ..errors import LearnerError
from ..hooks.kinds import TrainSequence
from .batches import ROLES, MicroBatch, check_batch, pack, pad, split_minibatches
from .loss import LossConfig, TokenRecord, policy_loss, summarise
from .options import TorchOptions
from .torch_model import TorchPolicy, check_finite

__all__ = ["TorchLearner"]

_log = structlog.get_logger(__name__)
_STATE_FILE = "learner.pt"
_STATE_FORMAT = 1


@dataclass(frozen=True, slots=True)
class _Update:
    """What one optimizer update saw; ``grad_norm`` is that before clipping."""

    loss: float
    grad_norm: float
    records: list[TokenRecord]


class TorchLearner:
    """Trains the policy in this process; see :class:`spade_agentic.hooks.kinds.Learner`.

    On a CPU it is deterministic: the same model, options, seed, thread count and batches give bit-identical weights, in
    any process and whatever the order of a batch; ``save`` and ``load`` do not show in them. ``seed`` decides how
    sequences are dealt to the minibatches of a step. Raises :class:`ConfigError` for a model or option that cannot work.
    """

    def __init__(self, model_dir: Path, options: TorchOptions | None = None, *, seed: int = 0) -> None:
        self.options = options = options or TorchOptions()
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        self.loss_config = LossConfig(options.clip_low, options.clip_high, options.is_cap, options.kl_coef)
        self.policy = TorchPolicy(
            model_dir, device=options.device, bfloat16=options.dtype == "bfloat16", packed=options.attention == "packed",
            gradient_checkpointing=options.gradient_checkpointing, lora=options.lora, seed=seed,
        )
        self.reference = self.policy.frozen_copy() if options.kl_coef else None
        self.named = self.policy.named_parameters()
        self.optimizer = torch.optim.AdamW(
            [
                {"params": [p for _, p in self.named if p.ndim >= 2], "weight_decay": options.weight_decay},
                {"params": [p for _, p in self.named if p.ndim < 2], "weight_decay": 0.0},
            ],
            lr=options.lr, betas=options.betas, eps=options.eps, fused=True,
        )
        self.steps = 0
        self.updates = 0
        self._deal = torch.Generator().manual_seed(seed)

    # --- the Learner protocol ------------------------------------------------------------------------------------------

    def step(self, batch: Sequence[TrainSequence]) -> dict[str, float]:
        """Train on one batch: one update for each of its minibatches (one by default) in each epoch (one by default).

        pi_prox is the policy as it is now, computed once for the whole step. Each update minimises the per-token mean of
        its minibatch. The minibatches stay what they are over the epochs; their order is drawn anew. Metrics
        are flat: totals, and per role those of :func:`spade_agentic.learning.loss.summarise`.

        Raises:
            LearnerError: the batch is malformed (:func:`check_batch`), or an update's log-probabilities or gradients are
                not finite. Such an update is refused before it touches weights or optimizer; earlier updates of the
                same step stand, so whoever wants to go on must ``load`` a checkpoint first.
        """
        started = time.perf_counter()
        check_batch(batch)
        minibatches = [self._micro_batches(part) for part in self._split(batch)]
        # The first minibatch is trained on at the very weights that define pi_prox, so its own pass gives it.
        prox = [None, *([self._frozen(self.policy, micro) for micro in part] for part in minibatches[1:])]
        losses, norms, records = [], [], []
        for epoch in range(self.options.epochs):
            for i in self._order(epoch, len(minibatches)):
                seen = self._update(minibatches[i], prox[i])
                losses.append(seen.loss)
                norms.append(seen.grad_norm)
                records += seen.records
                if prox[i] is None:
                    prox[i] = [record.prox for record in seen.records]
        self.steps += 1
        return self._metrics(batch, minibatches, losses, norms, records, time.perf_counter() - started)

    def save_weights(self, folder: Path) -> None:
        """Write the policy as a transformers model folder (LoRA merged), for an inference engine."""
        self.policy.export(folder)

    def save(self, folder: Path) -> None:
        """Write everything that the next step depends on, except options and base model, into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "format": _STATE_FORMAT,
            "steps": self.steps,
            "updates": self.updates,
            "threads": torch.get_num_threads(),
            "weights": {name: p.detach() for name, p in self.named},
            "optimizer": self.optimizer.state_dict(),
            "deal": self._deal.get_state(),
            "torch_rng": torch.get_rng_state(),
        }
        torch.save(state, folder / _STATE_FILE)

    def load(self, folder: Path) -> None:
        """Continue from what ``save`` wrote. Raises :class:`LearnerError` where that is missing or of another model."""
        path = folder / _STATE_FILE
        if not path.is_file():
            raise LearnerError(f"there is no learner state at {path}")
        state = torch.load(path, map_location="cpu", weights_only=True)
        mine = {name: tuple(p.shape) for name, p in self.named}
        theirs = {name: tuple(p.shape) for name, p in state["weights"].items()}
        if state["format"] != _STATE_FORMAT or mine != theirs:
            different = sorted(dict(mine.items() ^ theirs.items()))
            raise LearnerError(f"the learner state at {path} is of another model or format: {different[:3]} differ")
        if self.policy.device.type == "cpu" and state["threads"] != torch.get_num_threads():
            _log.warning("learner_threads_changed", saved=state["threads"], now=torch.get_num_threads(),
                         meaning="the continuation is correct, but not bit for bit that of an uninterrupted run")
        with torch.no_grad():
            for name, parameter in self.named:
                parameter.copy_(state["weights"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps, self.updates = state["steps"], state["updates"]
        self._deal.set_state(state["deal"])
        torch.set_rng_state(state["torch_rng"])

    def close(self) -> None:
        """Free the model and the optimizer's state; the learner cannot be used afterwards."""
        del self.policy, self.reference, self.optimizer, self.named

    # --- inside --------------------------------------------------------------------------------------------------------

    def _split(self, batch: Sequence[TrainSequence]) -> list[list[TrainSequence]]:
        parts = self.options.parts(len(batch), sum(sum(s.mask) for s in batch))
        if parts == 1:
            return [list(batch)]
        return split_minibatches(batch, parts, torch.randperm(len(batch), generator=self._deal).tolist())

    def _order(self, epoch: int, parts: int) -> list[int]:
        """The first epoch begins with minibatch 0, whose pass is pi_prox; the dealing has shuffled it already."""
        return list(range(parts)) if epoch == 0 or parts == 1 else torch.randperm(parts, generator=self._deal).tolist()

    def _micro_batches(self, batch: Sequence[TrainSequence]) -> list[MicroBatch]:
        if self.options.attention == "packed":
            rows = pack(batch, self.options.token_budget, share=self.options.prefix_sharing)
        else:
            rows = pad(batch, self.options.token_budget)
        return [row.to(self.policy.device) for row in rows]

    @torch.no_grad()
    def _frozen(self, policy: TorchPolicy, micro: MicroBatch) -> Tensor:
        return policy.logprobs(micro)[0]

    def _update(self, minibatch: Sequence[MicroBatch], prox: Sequence[Tensor] | None) -> _Update:
        """One optimizer update. ``prox`` is pi_prox of each micro-batch; ``None``: the weights are still those of pi_prox."""
        self.optimizer.zero_grad(set_to_none=True)
        normaliser = sum(micro.trained_tokens for micro in minibatch)
        total = 0.0
        records: list[TokenRecord] = []
        for i, micro in enumerate(minibatch):
            logprobs, entropy = self.policy.logprobs(micro)
            check_finite(logprobs, micro, f"update {self.updates + 1}: the log-probabilities")
            before = logprobs.detach() if prox is None else prox[i]
            reference = self._frozen(self.reference, micro) if self.reference else None
            # The loss is differentiated to the log-probs first, and those into the model: the gradient of every token
            # is then at hand for the audit of the signal.
            leaf = logprobs.detach().requires_grad_()
            loss = policy_loss(
                leaf, prox=before, rollout=micro.rollout_logprobs, advantage=micro.advantage, weight=micro.weight,
                normaliser=normaliser, config=self.loss_config, reference=reference,
            )
            (signal,) = torch.autograd.grad(loss, leaf)
            check_finite(signal, micro, f"update {self.updates + 1}: the loss's derivatives")
            logprobs.backward(signal)
            total += float(loss.detach())
            records.append(TokenRecord(
                micro.role, leaf.detach(), before, micro.rollout_logprobs, micro.advantage, entropy, signal, reference
            ))
        norm = float(torch.nn.utils.clip_grad_norm_([p for _, p in self.named], self.options.max_grad_norm))
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise LearnerError(
                f"update {self.updates + 1}: the gradient's norm is {norm}; the weights were not changed by this update"
            )
        for group in self.optimizer.param_groups:
            group["lr"] = self._lr()
        self.optimizer.step()
        self.updates += 1
        return _Update(total, norm, records)

    def _lr(self) -> float:
        return self.options.lr * min(1.0, (self.updates + 1) / max(1, self.options.warmup_updates))

    def _metrics(
        self, batch: Sequence[TrainSequence], minibatches: Sequence[Sequence[MicroBatch]], losses: Sequence[float],
        norms: Sequence[float], records: Sequence[TokenRecord], seconds: float,
    ) -> dict[str, float]:
        tokens = sum(len(s.token_ids) for s in batch)
        metrics: dict[str, Any] = {
            "loss": sum(losses) / len(losses),
            "grad_norm": sum(norms) / len(norms),
            "grad_norm_max": max(norms),
            "lr": self.optimizer.param_groups[0]["lr"],
            "updates": len(losses),
            "sequences": len(batch),
            "tokens": tokens,
            "trained_tokens": sum(m.trained_tokens for part in minibatches for m in part),
            "computed_tokens": sum(m.computed_tokens for part in minibatches for m in part),
            "seconds": seconds,
            "tokens_per_s": tokens / seconds,
            **summarise(records, ROLES, self.loss_config),
        }
        for role in ROLES:
            metrics[f"{role}/sequences"] = sum(s.role is role for s in batch)
        return {name: float(value) for name, value in metrics.items()}
