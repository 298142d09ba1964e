"""The options of the ``torch`` learner. They are here so that a configuration can be checked without importing torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..hooks.kinds import Options

__all__ = ["LoraOptions", "TorchOptions"]


class LoraOptions(Options):
    """Train low-rank adapters (arXiv 2106.09685) instead of the weights. Exported weights have them merged in."""

    rank: int = Field(16, ge=1)
    alpha: float = Field(32.0, gt=0)
    target_modules: str | list[str] = "all-linear"


class TorchOptions(Options):
    """Options of the ``torch`` learner. Defaults are the paper's where it states them (learning rate, betas, decay, clip)."""

    lr: float = Field(1e-6, gt=0)
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.1, ge=0, description="not applied to vectors (norms, biases)")
    warmup_updates: int = Field(0, ge=0, description="the learning rate rises linearly over this many updates")
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.28, gt=0)
    kl_coef: float = Field(0.0, ge=0, description="weight of the KL to the model the run began with; 0: no reference")
    is_cap: float = Field(2.0, gt=0, description="cap of the importance weight pi_prox / pi_rollout")
    max_grad_norm: float = Field(1.0, gt=0)
    updates_per_step: int = Field(1, ge=1, description="disjoint minibatches, one update each, with pi_prox fixed")
    token_budget: int = Field(4096, ge=16, description="computed tokens of one micro-batch")
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$")
    threads: int | None = Field(None, ge=1, description="CPU threads; null: what torch chooses for this machine")
    attention: Literal["packed", "model"] = Field("packed", description="model: padded rows, the model's own attention")
    prefix_sharing: bool = True
    gradient_checkpointing: bool = False
    lora: LoraOptions | None = None
