"""The Qwen3 forward pass in float32, shaped for a small model on a CPU, where the cost is in calls and memory traffic.

Query, key and value projections are one matrix, gate and up are one matrix. Rotary embedding is one complex product: rows
of the query and key projections are permuted so that a rotated pair lies side by side (attention does not change under a
permutation that queries and keys share). Attention works on packed tokens and has two parts, merged by log-sum-exp: the
request's own row, and the stem that it shares with others (see ``kv``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import WeightUpdateFailed
from ..publishing import Float32, tensor_checksum
from .config import ModelConfig
from .kv import KVMemory

__all__ = ["OwnPlan", "Qwen3", "StemPlan", "Weights"]

_flash: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # the fused kernel that also returns log-sum-exp


@dataclass(frozen=True, slots=True)
class _Layer:
    input_norm: Tensor
    qkv: Tensor
    qk_norm: Tensor
    output: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Weights:
    """One version of the weights, fused for the forward pass. Built whole or not at all."""

    def __init__(self, config: ModelConfig, tensors: dict[str, Float32], version: str) -> None:
        """Raises :class:`WeightUpdateFailed` naming the first tensor that is missing, surplus, misshapen or not finite."""
        self.config, self.version = config, version
        _check(config, tensors)
        t = {name: torch.from_numpy(np.array(values, dtype=np.float32)) for name, values in tensors.items()}
        order = _pair_order(config.head_dim)
        c = config
        layers = []
        for i in range(c.num_layers):
            p = f"model.layers.{i}."
            q, k = (_permute_heads(t[p + f"self_attn.{n}_proj.weight"], order) for n in "qk")
            norms = [t[p + f"self_attn.{n}_norm.weight"][order] for n in "qk"]
            layers.append(_Layer(
                input_norm=t[p + "input_layernorm.weight"].clone(),
                qkv=torch.cat([q, k, t[p + "self_attn.v_proj.weight"]]),
                qk_norm=torch.stack([norms[0]] * c.num_heads + [norms[1]] * c.num_kv_heads),
                output=t[p + "self_attn.o_proj.weight"].t().contiguous(),
                post_norm=t[p + "post_attention_layernorm.weight"].clone(),
                gate_up=torch.cat([t[p + "mlp.gate_proj.weight"], t[p + "mlp.up_proj.weight"]]),
                down=t[p + "mlp.down_proj.weight"].t().contiguous(),
            ))
        self.layers = tuple(layers)
        self.embedding = t["model.embed_tokens.weight"].clone()
        self.final_norm = t["model.norm.weight"].clone()
        self.head = self.embedding if c.tied_embeddings else t["lm_head.weight"].clone()

    def checksums(self) -> dict[str, str]:
        """Checksum of every tensor, taken from the memory that the forward pass reads."""
        return {name: tensor_checksum(tensor.contiguous().numpy()) for name, tensor in self._unfused().items()}

    def _unfused(self) -> dict[str, Tensor]:
        c, out = self.config, {"model.embed_tokens.weight": self.embedding, "model.norm.weight": self.final_norm}
        if not c.tied_embeddings:
            out["lm_head.weight"] = self.head
        back = torch.argsort(_pair_order(c.head_dim))
        sizes = [c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim, c.num_kv_heads * c.head_dim]
        for i, layer in enumerate(self.layers):
            p = f"model.layers.{i}."
            q, k, v = layer.qkv.split(sizes)
            gate, up = layer.gate_up.chunk(2)
            out |= {
                p + "input_layernorm.weight": layer.input_norm,
                p + "self_attn.q_proj.weight": _permute_heads(q, back),
                p + "self_attn.k_proj.weight": _permute_heads(k, back),
                p + "self_attn.v_proj.weight": v,
                p + "self_attn.q_norm.weight": layer.qk_norm[0][back],
                p + "self_attn.k_norm.weight": layer.qk_norm[-1][back],
                p + "self_attn.o_proj.weight": layer.output.t(),
                p + "post_attention_layernorm.weight": layer.post_norm,
                p + "mlp.gate_proj.weight": gate,
                p + "mlp.up_proj.weight": up,
                p + "mlp.down_proj.weight": layer.down.t(),
            }
        return out


def _pair_order(head_dim: int) -> Tensor:
    """Indices that put dimension ``i`` beside its rotary partner ``i + head_dim / 2``."""
    return torch.arange(head_dim).view(2, head_dim // 2).t().reshape(-1)


def _permute_heads(weight: Tensor, order: Tensor) -> Tensor:
    return weight.view(-1, len(order), weight.shape[-1])[:, order].reshape(weight.shape)


def _expected_shapes(c: ModelConfig) -> dict[str, tuple[int, ...]]:
    q, kv, h, m = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim, c.hidden_size, c.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (c.vocab_size, h), "model.norm.weight": (h,)}
    if not c.tied_embeddings:
        shapes["lm_head.weight"] = (c.vocab_size, h)
    for i in range(c.num_layers):
        p = f"model.layers.{i}."
        shapes |= {
            p + "input_layernorm.weight": (h,), p + "post_attention_layernorm.weight": (h,),
            p + "self_attn.q_proj.weight": (q, h), p + "self_attn.k_proj.weight": (kv, h),
            p + "self_attn.v_proj.weight": (kv, h), p + "self_attn.o_proj.weight": (h, q),
            p + "self_attn.q_norm.weight": (c.head_dim,), p + "self_attn.k_norm.weight": (c.head_dim,),
            p + "mlp.gate_proj.weight": (m, h), p + "mlp.up_proj.weight": (m, h), p + "mlp.down_proj.weight": (h, m),
        }
    return shapes


def _check(config: ModelConfig, tensors: dict[str, Float32]) -> None:
    expected = _expected_shapes(config)
    for name, shape in expected.items():
        if name not in tensors:
            raise WeightUpdateFailed(f"the weights lack tensor {name!r}")
        if tuple(tensors[name].shape) != shape:
            raise WeightUpdateFailed(f"tensor {name!r} has shape {tuple(tensors[name].shape)}, the model needs {shape}")
        if not np.isfinite(tensors[name]).all():
            raise WeightUpdateFailed(f"tensor {name!r} holds values that are not finite")
    surplus = set(tensors) - set(expected) - ({"lm_head.weight"} if config.tied_embeddings else set())
    if surplus:
        raise WeightUpdateFailed(f"the model has no tensor {min(surplus)!r}")


@dataclass(frozen=True, slots=True)
class OwnPlan:
    """Where packed tokens attend in their own rows.

    Decode: ``pad`` and ``unpad`` are ``None`` and packed token ``i`` is the one query of row ``rows[i]``. Prefill: ``pad``
    ``[rows * width]`` picks the packed token of each padded query, ``unpad`` ``[tokens]`` finds it again. ``mask`` is
    ``[rows, 1, queries, length]`` with 0 or -inf; ``rows`` is a slice, or an index where the rows do not touch.
    """

    rows: slice | Tensor
    length: int
    mask: Tensor
    write: Tensor
    width: int = 1
    pad: Tensor | None = None
    unpad: Tensor | None = None


@dataclass(frozen=True, slots=True)
class StemPlan:
    """Which packed tokens attend to which shared stem.

    ``gather`` ``[stems * width]`` picks the packed tokens of each stem (padded with any token), ``scatter`` ``[tokens]``
    finds each token's result, ``mask`` ``[stems, 1, 1, length]`` hides what is beyond a stem's end, and ``missing``
    ``[tokens, 1, 1]`` is -inf for tokens without a stem and 0 for the others.
    """

    stems: int
    width: int
    length: int
    gather: Tensor
    scatter: Tensor
    mask: Tensor
    missing: Tensor


class Qwen3:
    """The forward pass. ``weights`` may be swapped between calls."""

    def __init__(self, config: ModelConfig, weights: Weights, max_positions: int) -> None:
        self.config, self.weights = config, weights
        c = config
        inverse = 1.0 / (c.rope_theta ** (torch.arange(0, c.head_dim, 2, dtype=torch.int64).float() / c.head_dim))
        angles = torch.outer(torch.arange(max_positions).float(), inverse)
        self._rotation = torch.complex(angles.cos(), angles.sin())
        self._group = c.num_heads // c.num_kv_heads

    def forward(self, tokens: Tensor, positions: Tensor, memory: KVMemory, own: OwnPlan, stem: StemPlan | None) -> Tensor:
        """Hidden states ``[tokens, hidden]`` before the final norm; writes the tokens' keys and values into their rows.

        ``tokens`` and ``positions`` are packed ``[tokens]`` int64.
        """
        c, n = self.config, tokens.shape[0]
        heads, both = c.num_heads, c.num_heads + c.num_kv_heads
        rotation = self._rotation.index_select(0, positions).unsqueeze(1)
        x = self.weights.embedding.index_select(0, tokens)
        for i, layer in enumerate(self.weights.layers):
            normed = F.rms_norm(x, (c.hidden_size,), layer.input_norm, c.rms_norm_eps)
            qkv = F.linear(normed, layer.qkv).view(n, both + c.num_kv_heads, c.head_dim)
            qk = F.rms_norm(qkv[:, :both], (c.head_dim,), None, c.rms_norm_eps).mul_(layer.qk_norm)
            pairs = torch.view_as_complex(qk.view(n, both, c.head_dim // 2, 2)).mul_(rotation)
            qk = torch.view_as_real(pairs).view(n, both, c.head_dim)
            memory.rows.flat_keys[i].index_copy_(0, own.write, qk[:, heads:].reshape(-1, c.head_dim))
            memory.rows.flat_values[i].index_copy_(0, own.write, qkv[:, both:].reshape(-1, c.head_dim))
            query = qk[:, :heads].reshape(n, c.num_kv_heads, self._group, c.head_dim)
            attended = self._attend(query, i, memory, own, stem)
            x = torch.addmm(x, attended.reshape(n, heads * c.head_dim), layer.output)
            normed = F.rms_norm(x, (c.hidden_size,), layer.post_norm, c.rms_norm_eps)
            gate, up = F.linear(normed, layer.gate_up).chunk(2, dim=-1)
            x = torch.addmm(x, F.silu(gate).mul_(up), layer.down)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits ``[n, vocab]`` of hidden states ``[n, hidden]``."""
        c = self.config
        return F.linear(F.rms_norm(hidden, (c.hidden_size,), self.weights.final_norm, c.rms_norm_eps), self.weights.head)

    def _attend(self, query: Tensor, layer: int, memory: KVMemory, own: OwnPlan, stem: StemPlan | None) -> Tensor:
        """Attention of ``query`` ``[tokens, kv_heads, group, head_dim]``, same shape out."""
        keys = memory.rows.keys[layer][own.rows, :, : own.length]
        values = memory.rows.values[layer][own.rows, :, : own.length]
        if own.pad is None:
            result, weight = _flash(query, keys, values, 0.0, False, attn_mask=own.mask)
        else:
            assert own.unpad is not None
            padded = _to_units(query, own.pad, own.width)
            result, weight = _flash(padded, keys, values, 0.0, False, attn_mask=own.mask)
            result, weight = _from_units(result, weight, own.width, own.unpad)
        if stem is None:
            return cast(Tensor, result)
        keys = memory.stems.keys[layer][: stem.stems, :, : stem.length]
        values = memory.stems.values[layer][: stem.stems, :, : stem.length]
        shared, shared_weight = _flash(_to_units(query, stem.gather, stem.width), keys, values, 0.0, False,
                                       attn_mask=stem.mask)
        shared, shared_weight = _from_units(shared, shared_weight, stem.width, stem.scatter)
        share = torch.sigmoid(shared_weight + stem.missing - weight.view(shared_weight.shape))
        return torch.lerp(result, shared, share.unsqueeze(-1))


def _to_units(query: Tensor, index: Tensor, width: int) -> Tensor:
    """``[tokens, heads, group, dim]`` to ``[units, heads, width * group, dim]``."""
    _, heads, group, dim = query.shape
    picked = query.index_select(0, index).view(-1, width, heads, group, dim)
    return picked.transpose(1, 2).reshape(-1, heads, width * group, dim)


def _from_units(result: Tensor, weight: Tensor, width: int, index: Tensor) -> tuple[Tensor, Tensor]:
    """The way back: ``[tokens, heads, group, dim]``, and log-sum-exp ``[tokens, heads, group]``."""
    units, heads, queries, dim = result.shape
    group = queries // width
    back = result.view(units, heads, width, group, dim).transpose(1, 2).reshape(-1, heads, group, dim)
    weight_back = weight.reshape(units, heads, width, group).transpose(1, 2).reshape(-1, heads, group)
    return back.index_select(0, index), weight_back.index_select(0, index)
