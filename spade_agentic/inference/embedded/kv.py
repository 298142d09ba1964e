"""Key/value memory, in three places.

*Rows* hold what belongs to one running request alone; decode reads them as plain views, so a step gathers nothing.
*Stems* hold prefixes that several running requests share; attention reads a stem once for all its members and merges
the two parts by their log-sum-exp. The *pool* holds one entry per cached token, addressed by slot numbers that the prefix
tree owns; tokens are copied from it into rows and stems at admission, and back after prefill and at the end.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .config import ModelConfig

__all__ = ["KVMemory"]

_FIRST_ROWS = 16
_FIRST_LENGTH = 128
_FIRST_STEMS = 4


class _Grid:
    """Keys and values of ``units`` sequences of up to ``length`` tokens: per layer ``[units, kv_heads, length, head_dim]``.

    It grows by doubling and is filled with zeros: masked entries are multiplied by zero, so they must be finite.
    """

    def __init__(self, config: ModelConfig, units: int, length: int) -> None:
        self._config = config
        self._first = (units, length)
        self._allocate(units, length)

    def _allocate(self, units: int, length: int) -> None:
        c = self._config
        self.units, self.length = units, length
        shape = (units, c.num_kv_heads, length, c.head_dim)
        self.keys = [torch.zeros(shape) for _ in range(c.num_layers)]
        self.values = [torch.zeros(shape) for _ in range(c.num_layers)]
        self._refresh()

    def _refresh(self) -> None:
        self.flat_keys = [k.view(-1, self._config.head_dim) for k in self.keys]
        self.flat_values = [v.view(-1, self._config.head_dim) for v in self.values]

    def reserve(self, units: int, length: int) -> None:
        """Make room for ``units`` sequences of ``length`` tokens, keeping what is there."""
        if units <= self.units and length <= self.length:
            return
        new_units, new_length = self.units, self.length
        while new_units < units:
            new_units *= 2
        while new_length < length:
            new_length *= 2
        old_keys, old_values, old = self.keys, self.values, (self.units, self.length)
        self._allocate(new_units, new_length)
        for layer, (k, v) in enumerate(zip(old_keys, old_values, strict=True)):
            self.keys[layer][: old[0], :, : old[1]] = k
            self.values[layer][: old[0], :, : old[1]] = v

    def reset(self) -> None:
        """Back to the first size, all zeros, so that a flushed server is in the state of a fresh one."""
        self._allocate(*self._first)

    def flat_index(self, units: Tensor, positions: Tensor) -> Tensor:
        """Rows of the flat views for tokens at ``(unit, position)``: ``[tokens * kv_heads]``."""
        heads = self._config.num_kv_heads
        return ((units[:, None] * heads + torch.arange(heads)) * self.length + positions[:, None]).view(-1)

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` tokens of unit ``source`` over unit ``target``."""
        for tensors in (self.keys, self.values):
            for tensor in tensors:
                tensor[target, :, :length] = tensor[source, :, :length]


class KVMemory:
    """All key/value memory of one server: ``pool_tokens`` cached tokens, and rows and stems that grow on demand."""

    def __init__(self, config: ModelConfig, pool_tokens: int) -> None:
        self.config = config
        self.pool_tokens = pool_tokens
        self.rows = _Grid(config, _FIRST_ROWS, _FIRST_LENGTH)
        self.stems = _Grid(config, _FIRST_STEMS, _FIRST_LENGTH)
        shape = (pool_tokens, config.num_kv_heads, config.head_dim)
        # torch.empty leaves untouched pages uncommitted: a pool costs memory only as it fills.
        self._pool_keys = [torch.empty(shape) for _ in range(config.num_layers)]
        self._pool_values = [torch.empty(shape) for _ in range(config.num_layers)]

    def load(self, grid: _Grid, slots: Tensor, units: Tensor, positions: Tensor) -> None:
        """Copy pool ``slots[i]`` to ``(units[i], positions[i])`` of ``grid``, in every layer."""
        index = grid.flat_index(units, positions)
        for layer in range(self.config.num_layers):
            grid.flat_keys[layer].index_copy_(0, index, self._pool_keys[layer][slots].view(-1, self.config.head_dim))
            grid.flat_values[layer].index_copy_(0, index, self._pool_values[layer][slots].view(-1, self.config.head_dim))

    def store(self, units: Tensor, positions: Tensor, slots: Tensor) -> None:
        """Copy ``(units[i], positions[i])`` of the rows to pool ``slots[i]``, in every layer."""
        index = self.rows.flat_index(units, positions)
        shape = (-1, self.config.num_kv_heads, self.config.head_dim)
        for layer in range(self.config.num_layers):
            self._pool_keys[layer].index_copy_(0, slots, self.rows.flat_keys[layer][index].view(shape))
            self._pool_values[layer].index_copy_(0, slots, self.rows.flat_values[layer][index].view(shape))

    def reset(self) -> None:
        """Forget rows and stems. The pool needs nothing: its tree has forgotten every slot."""
        self.rows.reset()
        self.stems.reset()
