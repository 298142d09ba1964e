"""The running batch: one row per request, its state in arrays, so that a decode step touches no request object.

Rows ``[0, high)`` are computed in every step; a hole among them costs compute, and ``compact`` closes holes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .config import ModelConfig
from .kv import KVMemory
from .model import OwnPlan, StemPlan
from .requests import GenerationRequest
from .sampling import SamplerInput, uniform

__all__ = ["Rows", "Stems", "stem_plan"]

Ints = npt.NDArray[np.int64]

_ALIGN = 32
"""Attention lengths are rounded up to this many tokens, so that a step's shapes change rarely."""

_ZERO, _MINUS_INF = torch.tensor(0.0), torch.tensor(float("-inf"))


def causal_mask(last_key: Tensor, length: int) -> Tensor:
    """0 where key index <= ``last_key``, else -inf; shape of ``last_key`` plus ``[length]``."""
    return torch.where(torch.arange(length) <= last_key.unsqueeze(-1), _ZERO, _MINUS_INF)


def aligned(length: int, limit: int) -> int:
    """``length`` rounded up for attention, at most ``limit``."""
    return min(-(-length // _ALIGN) * _ALIGN, limit)


class Stems:
    """The shared prefixes in the stem grid: which prefix each slot holds, and how many rows use it."""

    def __init__(self) -> None:
        self._prefixes: list[bytes | None] = []
        self._users: list[int] = []
        self.lengths: list[int] = []

    def users(self, prefix: bytes) -> int:
        """Rows that attend to this prefix now."""
        return self._users[self._prefixes.index(prefix)] if prefix in self._prefixes else 0

    def acquire(self, prefix: bytes, length: int) -> tuple[int, bool]:
        """A slot for ``prefix``, counting one more user; true where the caller must fill it."""
        if prefix in self._prefixes:
            slot, fresh = self._prefixes.index(prefix), False
        else:
            slot, fresh = self._vacant(), True
            self._prefixes[slot], self.lengths[slot] = prefix, length
        self._users[slot] += 1
        return slot, fresh

    def _vacant(self) -> int:
        if 0 in self._users:
            return self._users.index(0)
        self._prefixes.append(None)
        self._users.append(0)
        self.lengths.append(0)
        return len(self._users) - 1

    def release(self, slot: int) -> None:
        """One user less. The slot keeps its content until another prefix needs the place."""
        if slot >= 0:
            self._users[slot] -= 1

    def forget(self) -> None:
        """The weights changed: nobody new may use what is there; running rows keep their slot."""
        self._prefixes = [None] * len(self._prefixes)


def stem_plan(slots: Ints, stems: Stems) -> StemPlan | None:
    """The plan for packed tokens whose stems are ``slots`` (-1: none); ``None`` where no token has one."""
    with_stem = np.flatnonzero(slots >= 0)
    if not len(with_stem):
        return None
    order = with_stem[np.argsort(slots[with_stem], kind="stable")]
    counts = np.bincount(slots[order])
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    width, number = int(counts.max()), len(counts)
    places = slots[order] * width + np.arange(len(order)) - starts[slots[order]]
    gather = np.zeros(number * width, np.int64)
    gather[places] = order
    scatter = np.zeros(len(slots), np.int64)
    scatter[order] = places
    lengths = np.where(counts > 0, np.asarray(stems.lengths[:number]), 1)
    length = int(lengths.max())
    missing = np.where(slots >= 0, 0.0, -np.inf).astype(np.float32)
    return StemPlan(
        stems=number, width=width, length=length, gather=torch.from_numpy(gather), scatter=torch.from_numpy(scatter),
        mask=causal_mask(torch.from_numpy(lengths - 1), length)[:, None, None],
        missing=torch.from_numpy(missing)[:, None, None],
    )


class Rows:
    """State of up to ``max_rows`` running requests. All arrays are indexed by row."""

    def __init__(self, config: ModelConfig, memory: KVMemory, max_rows: int) -> None:
        self._config, self._memory, self.max_rows = config, memory, max_rows
        self.stems = Stems()
        self.requests: list[GenerationRequest | None] = [None] * max_rows
        self.active = np.zeros(max_rows, bool)
        self.own_length = np.zeros(max_rows, np.int64)
        self.stem_slot = np.full(max_rows, -1, np.int64)
        self.stem_length = np.zeros(max_rows, np.int64)
        self.tainted = np.zeros(max_rows, bool)
        self._last = np.zeros(max_rows, np.int64)
        self._seed = np.zeros(max_rows, np.uint64)
        self._count = np.zeros(max_rows, np.int64)
        self._begin = np.zeros(max_rows, np.int64)
        self._limit = np.zeros(max_rows, np.int64)
        self._temperature = np.ones(max_rows, np.float32)
        self._greedy = np.zeros(max_rows, bool)
        self._top_k = np.zeros(max_rows, np.int64)
        self._top_p = np.ones(max_rows, np.float32)
        self._stops = np.zeros((max_rows, config.vocab_size), bool)
        self._tokens = np.zeros((max_rows, 64), np.int32)
        self._logprobs = np.zeros((max_rows, 64), np.float32)
        self._watched: set[int] = set()
        self._stem_plan: StemPlan | None = None
        self._all_rows = np.arange(max_rows)
        self.high = 0

    @property
    def running(self) -> int:
        return int(self.active.sum())

    def vacant(self) -> list[int]:
        """Rows without a request, lowest first."""
        return [int(r) for r in np.flatnonzero(~self.active)]

    # -- membership --------------------------------------------------------------------------------------------------

    def place(self, row: int, request: GenerationRequest, eos: tuple[int, ...]) -> None:
        """Give ``row`` to ``request``; its keys and values follow, see ``prefill``."""
        s = request.sampling
        self.requests[row], self.active[row], self.tainted[row] = request, True, False
        self._seed[row] = s.seed & 0xFFFFFFFFFFFFFFFF
        self._begin[row] = self._count[row] = len(request.token_ids)
        self._limit[row] = s.max_tokens
        self._greedy[row] = s.temperature == 0
        self._temperature[row] = s.temperature or 1.0
        self._top_k[row] = 0 if s.temperature == 0 else s.top_k
        self._top_p[row] = 1.0 if s.temperature == 0 else s.top_p
        self._stops[row] = False
        if not s.ignore_eos:
            self._stops[row, [t for t in (*s.stop_token_ids, *eos) if 0 <= t < self._config.vocab_size]] = True
        if s.max_tokens > self._tokens.shape[1]:
            grow = s.max_tokens + 64 - self._tokens.shape[1]
            self._tokens = np.pad(self._tokens, ((0, 0), (0, grow)))
            self._logprobs = np.pad(self._logprobs, ((0, 0), (0, grow)))
        if request.watcher is not None:
            self._watched.add(row)
        self.high = max(self.high, row + 1)

    def settle(self, row: int) -> GenerationRequest:
        """Write the row's progress back into its request."""
        request = self.requests[row]
        assert request is not None
        begin, count = int(self._begin[row]), int(self._count[row])
        request.token_ids.extend(self._tokens[row, begin:count].tolist())
        request.logprobs.extend(self._logprobs[row, begin:count].tolist())
        self._begin[row] = count
        return request

    def vacate(self, row: int) -> None:
        """Take the request off ``row``."""
        self.stems.release(int(self.stem_slot[row]))
        self.requests[row], self.active[row] = None, False
        self.own_length[row] = self.stem_length[row] = self._last[row] = self._count[row] = 0
        self.stem_slot[row] = -1
        self._watched.discard(row)
        while self.high and not self.active[self.high - 1]:
            self.high -= 1

    def compact(self) -> None:
        """Close holes by moving the highest rows down, where a fifth or more of the rows are holes."""
        while self.high and self.high - self.running > self.high // 5:
            source, target = self.high - 1, int(np.flatnonzero(~self.active[: self.high])[0])
            self._memory.rows.move(source, target, int(self.own_length[source]))
            for array in (self.own_length, self.stem_slot, self.stem_length, self.tainted, self._last, self._seed,
                          self._count, self._begin, self._limit, self._temperature, self._greedy, self._top_k,
                          self._top_p, self._stops, self._tokens, self._logprobs):
                array[target] = array[source]
            self.requests[target], self.active[target] = self.requests[source], True
            if source in self._watched:
                self._watched.add(target)
            self.stem_slot[source] = -1  # the user moved with the row
            self.vacate(source)
        self.refresh()

    def refresh(self) -> None:
        """Call after membership or stems changed: the stem plan of decode steps."""
        self._stem_plan = stem_plan(self.stem_slot[: self.high], self.stems)

    # -- one step ------------------------------------------------------------------------------------------------------

    def decode_input(self) -> tuple[Tensor, Tensor, OwnPlan, StemPlan | None]:
        """Tokens, absolute positions and plans of the next decode step over rows ``[0, high)``."""
        n, grid = self.high, self._memory.rows
        own = self.own_length[:n]
        longest = int(own.max()) + 1
        grid.reserve(n, longest)
        length = aligned(longest, grid.length)
        last_key = torch.from_numpy(own)
        plan = OwnPlan(
            rows=slice(0, n), length=length, mask=causal_mask(last_key, length)[:, None, None],
            write=grid.flat_index(torch.arange(n), last_key),
        )
        return torch.from_numpy(self._last[:n].copy()), torch.from_numpy(self.stem_length[:n] + own), plan, self._stem_plan

    def advance(self) -> None:
        """The decode step wrote one token into every active row."""
        self.own_length[: self.high] += self.active[: self.high]

    def sampler_input(self, rows: Ints) -> tuple[SamplerInput, npt.NDArray[np.float64]]:
        """Parameters and noise of the next token of ``rows``."""
        greedy, top_k, top_p = self._greedy[rows], self._top_k[rows], self._top_p[rows]
        limited = np.flatnonzero(((top_k > 0) | (top_p < 1.0)) & self.active[rows])
        params = SamplerInput(
            temperature=torch.from_numpy(self._temperature[rows]), greedy=torch.from_numpy(greedy),
            any_greedy=bool(greedy.any()), top_k=torch.from_numpy(top_k), top_p=torch.from_numpy(top_p),
            limited=torch.from_numpy(limited) if len(limited) else None,
        )
        return params, uniform(self._seed[rows], self._count[rows])

    def record(self, rows: Ints, tokens: Tensor, logprobs: Tensor) -> list[tuple[int, dict[str, Any]]]:
        """Append one sampled token to each of ``rows``; returns the rows that end with it, and why."""
        ids, values = tokens.numpy(), logprobs.numpy()
        column = self._count[rows]
        self._tokens[rows, column] = ids
        self._logprobs[rows, column] = values
        self._last[rows] = ids
        self._count[rows] = column + self.active[rows]  # a hole overwrites its own first column for ever
        stopped = self._stops[rows, ids]
        broken = ~np.isfinite(values)
        ended = (stopped | broken | (column + 1 >= self._limit[rows])) & self.active[rows]
        finished: list[tuple[int, dict[str, Any]]] = []
        for i in np.flatnonzero(ended):
            row = int(rows[i])
            if broken[i]:
                finished.append((row, {"type": "error", "message": "the model's logits are not finite"}))
            elif stopped[i]:
                finished.append((row, {"type": "stop", "matched": int(ids[i])}))
            else:
                finished.append((row, {"type": "length", "length": int(self._count[row])}))
        return self._watch(rows, ids, values, finished) if self._watched else finished

    def _watch(
        self, rows: Ints, ids: npt.NDArray[np.int64], values: npt.NDArray[np.float32],
        finished: list[tuple[int, dict[str, Any]]],
    ) -> list[tuple[int, dict[str, Any]]]:
        """Show the new tokens to the watchers; a stop string ends a row that has not ended by itself."""
        ended = {row for row, _ in finished}
        for i in np.flatnonzero([int(r) in self._watched for r in rows]):
            row = int(rows[i])
            request = self.requests[row]
            assert request is not None
            assert request.watcher is not None
            matched = request.watcher.push(int(ids[i]), float(values[i]))
            if matched is not None and row not in ended:
                finished.append((row, {"type": "stop", "matched": matched}))
        return finished

    def all_rows(self) -> Ints:
        return self._all_rows[: self.high]

    def reset(self) -> None:
        """Forget the stems; only while nothing runs."""
        assert self.high == 0
        self.stems = Stems()
        self._stem_plan = None
