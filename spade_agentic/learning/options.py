"""The options of the ``torch`` learner. They are here so that a configuration can be checked without importing torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from ..errors import ConfigError
from ..hooks.kinds import Options

__all__ = ["LoraOptions", "TorchOptions", "check_device"]


def check_device(device: str) -> None:
    """Raise :class:`ConfigError` where torch has no such device: ``cpu``, ``cuda`` or ``cuda:N``."""
    if device == "cpu":
        return
    import torch

    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = int(device.partition(":")[2] or 0)
    if number >= devices:
        raise ConfigError(
            f"there is no CUDA device {number} here, or this torch is built without CUDA", where="learner.options.device",
            todo="set it to 'cpu', or install a CUDA build of torch" if not devices else f"take one below cuda:{devices}",
        )


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
    warmup_updates: int = Field(0, ge=0, description="the rate rises linearly over this many updates, then stays")
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.28, gt=0)
    kl_coef: float = Field(0.0, ge=0, description="weight of the KL to the model the run began with; 0: no reference")
    is_cap: float = Field(2.0, gt=0, description="cap of the importance weight pi_prox / pi_rollout")
    max_grad_norm: float = Field(1.0, gt=0)
    minibatches: int = Field(1, ge=1, description="disjoint parts of a step's batch, one update each, with pi_prox fixed")
    minibatch_sequences: int | None = Field(None, ge=1, description="instead: about this many sequences a minibatch")
    minibatch_tokens: int | None = Field(None, ge=1, description="instead: about this many sampled tokens a minibatch")
    epochs: int = Field(1, ge=1, description="how often a step goes over its minibatches, with pi_prox fixed")
    token_budget: int = Field(4096, ge=16, description="computed tokens of one micro-batch")
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$")
    threads: int | None = Field(None, ge=1, description="CPU threads; null: what torch chooses for this machine")
    attention: Literal["packed", "model"] = Field("packed", description="model: padded rows, the model's own attention")
    prefix_sharing: bool = True
    gradient_checkpointing: bool = False
    lora: LoraOptions | None = None

    @model_validator(mode="after")
    def _one_minibatch_size(self) -> Self:
        given = [self.minibatches > 1, self.minibatch_sequences is not None, self.minibatch_tokens is not None]
        if sum(given) > 1:
            raise ValueError("give one of minibatches, minibatch_sequences and minibatch_tokens")
        return self

    def check_machine(self) -> None:
        check_device(self.device)

    def parts(self, sequences: int, trained_tokens: int) -> int:
        """Into how many minibatches a batch of this size is dealt; at least 1, at most one a sequence."""
        if self.minibatch_sequences is not None:
            wanted = round(sequences / self.minibatch_sequences)
        elif self.minibatch_tokens is not None:
            wanted = round(trained_tokens / self.minibatch_tokens)
        else:
            wanted = self.minibatches
        return max(1, min(wanted, sequences))
