"""A lane: one running batch with memory and prefix cache of its own.

The server has two. What runs in one cannot change a bit of what runs in the other: chat requests that come while a
deterministic run is training touch neither the batch nor the cache of its waves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .kv import KVMemory
from .model import Qwen3
from .prefill import Prefill
from .radix import PrefixTree
from .requests import GenerationRequest
from .rows import Rows
from .sampling import sample

__all__ = ["Lane"]


class Lane:
    """Up to ``max_rows`` running requests over ``pool_tokens`` cached tokens. Used by the compute thread alone."""

    def __init__(self, model: Qwen3, *, max_rows: int, pool_tokens: int) -> None:
        config = model.config
        self._model = model
        self._memory = KVMemory(config, pool_tokens)
        self._tree = PrefixTree(pool_tokens)
        self._rows = Rows(config, self._memory, max_rows)
        self._prefill = Prefill(model, self._memory, self._tree, self._rows)

    @property
    def running(self) -> int:
        return self._rows.running

    @property
    def vacant(self) -> int:
        """How many requests :meth:`admit` takes now."""
        return self._rows.max_rows - self._rows.running

    @property
    def cached_tokens(self) -> int:
        return self._tree.used

    def admit(self, requests: Sequence[GenerationRequest]) -> None:
        """Compute the prompts of ``requests``, in the order given, and their first tokens."""
        self._retire(self._prefill.admit(requests, self._model.config.eos_token_ids))

    def step(self) -> int:
        """One token for every running request; returns how many that were."""
        rows = self._rows
        running = rows.running
        tokens, positions, plan, stem = rows.decode_input()
        hidden = self._model.forward(tokens, positions, self._memory, plan, stem)
        rows.advance()
        every = rows.all_rows()
        params, noise = rows.sampler_input(every)
        finished = rows.record(every, *sample(self._model.logits(hidden), params, noise))
        if finished:
            self._retire(finished)
        return running

    def abort(self, chosen: Callable[[GenerationRequest], bool]) -> None:
        """End the running requests that ``chosen`` picks, with what they have."""
        self._retire([(row, {"type": "abort", "message": "aborted"}) for row, r in self._occupied() if chosen(r)])

    def retract(self) -> list[GenerationRequest]:
        """Take every running request off the batch, with its progress, in row order; they may be admitted again."""
        taken = []
        for row, _ in self._occupied():
            request = self._settle(row)
            self._rows.vacate(row)
            request.retractions += 1
            taken.append(request)
        self._rows.compact()
        return taken

    def mark_weights_changed(self, old_version: str) -> None:
        """The weights are about to change: what runs goes on with the keys and values it has, and enters no cache.

        Call before the model has its new weights; ``old_version`` is booked for the tokens up to here.
        """
        for row, request in self._occupied():
            self._rows.settle(row)
            request.add_span(old_version, len(request.token_ids))
            self._rows.tainted[row] = True
        self._tree.reset()
        self._rows.stems.forget()

    def flush(self) -> None:
        """Empty the prefix cache and go back to the state of a fresh server. Only while nothing runs."""
        assert self._rows.high == 0, "a lane is flushed while requests run in it"
        self._tree.reset()
        self._rows.reset()
        self._memory.reset()

    def _occupied(self) -> list[tuple[int, GenerationRequest]]:
        return [(row, r) for row, r in enumerate(self._rows.requests[: self._rows.high]) if r is not None]

    def _settle(self, row: int) -> GenerationRequest:
        request = self._rows.settle(row)
        request.add_span(self._model.weights.version, len(request.token_ids))
        return request

    def _retire(self, finished: Sequence[tuple[int, dict[str, Any]]]) -> None:
        """Cache what the finished rows hold, vacate them and deliver their results."""
        ended, cacheable = [], []
        for row, finish in finished:
            request = self._settle(row)
            ended.append((request, finish))
            if not self._rows.tainted[row] and finish["type"] != "error":
                length = int(self._rows.own_length[row] + self._rows.stem_length[row])
                cacheable.append((row, request.known_tokens()[:length], int(self._rows.stem_length[row])))
        if cacheable:
            self._tree.tick()
            self._prefill.remember(cacheable)
        for row, _ in finished:
            self._rows.vacate(row)
        self._rows.compact()
        for request, finish in ended:
            broken = finish["type"] == "error"
            request.deliver(request.result(
                finish, self._model.weights.version, error=finish["message"] if broken else None, status=500 if broken else 200,
            ))
