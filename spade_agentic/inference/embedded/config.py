"""The shape of a model, read from its Hugging Face folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import UserError

__all__ = ["ModelConfig", "load_model_config"]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The parts of ``config.json`` that the forward pass needs. ``eos_token_ids`` may be empty."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_positions: int
    tied_embeddings: bool
    eos_token_ids: tuple[int, ...]
    model_type: str = "qwen3"
    architecture: str = "Qwen3ForCausalLM"

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that one cached token takes, over all layers (keys and values, float32)."""
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim * 4


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(int(v) for v in value) if isinstance(value, list) else (int(value),)


def _qwen3(raw: dict[str, Any], where: str) -> ModelConfig:
    def refuse(what: str) -> UserError:
        return UserError(f"The embedded engine cannot run this model: {what}.", where=where,
                         todo="Serve it with SGLang, or use a plain dense Qwen3 model.")

    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise refuse(f"rope type {rope.get('rope_type', rope.get('type'))!r} is not supported")
    if raw.get("attention_bias"):
        raise refuse("attention_bias is set")
    if raw.get("use_sliding_window"):
        raise refuse("use_sliding_window is set")
    if raw.get("hidden_act", "silu") != "silu":
        raise refuse(f"hidden_act {raw['hidden_act']!r} is not supported")
    heads = int(raw["num_attention_heads"])
    kv_heads = int(raw.get("num_key_value_heads") or heads)
    head_dim = int(raw.get("head_dim") or raw["hidden_size"] // heads)
    if heads % kv_heads or head_dim % 2:
        raise refuse(f"{heads} heads over {kv_heads} key/value heads of size {head_dim}")
    theta = rope.get("rope_theta", raw.get("rope_theta", 10000.0))
    return ModelConfig(
        vocab_size=int(raw["vocab_size"]), hidden_size=int(raw["hidden_size"]),
        intermediate_size=int(raw["intermediate_size"]), num_layers=int(raw["num_hidden_layers"]), num_heads=heads,
        num_kv_heads=kv_heads, head_dim=head_dim, rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope_theta=float(theta), max_positions=int(raw.get("max_position_embeddings", 32768)),
        tied_embeddings=bool(raw.get("tie_word_embeddings", False)), eos_token_ids=_ids(raw.get("eos_token_id")),
    )


_ARCHITECTURES = {"Qwen3ForCausalLM": _qwen3}
"""Reader of ``config.json`` by ``architectures[0]``; the forward pass of each must exist in ``model``."""


def load_model_config(folder: Path) -> ModelConfig:
    """Read ``config.json`` (and ``generation_config.json`` for end-of-sequence ids) of ``folder``.

    Raises :class:`UserError` where the folder is not a model or the architecture is not supported.
    """
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"No readable model configuration: {error}", where=str(path),
                        todo="Point to a Hugging Face model folder with config.json and model.safetensors.") from error
    names = raw.get("architectures") or ["(none)"]
    if names[0] not in _ARCHITECTURES:
        raise UserError(f"The embedded engine has no forward pass for architecture {names[0]!r}.", where=str(path),
                        todo=f"Use one of {', '.join(sorted(_ARCHITECTURES))}, or serve this model with SGLang.")
    try:
        config = _ARCHITECTURES[names[0]](raw, str(path))
    except KeyError as error:
        raise UserError(f"The model configuration lacks {error}.", where=str(path), todo="Add the key.") from error
    generation = folder / "generation_config.json"
    if generation.is_file():
        extra = _ids(json.loads(generation.read_text(encoding="utf-8")).get("eos_token_id"))
        config = replace(config, eos_token_ids=tuple(dict.fromkeys((*config.eos_token_ids, *extra))))
    return config
