"""Admission of requests into the batch: shared prefixes are computed once, then every remaining suffix, in few passes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .kv import KVMemory
from .model import OwnPlan, Qwen3
from .radix import Match, PrefixTree
from .requests import GenerationRequest
from .rows import Rows, aligned, causal_mask, stem_plan
from .sampling import sample

__all__ = ["Prefill"]

Ids = npt.NDArray[np.int32]

_SHARED_AT_LEAST = 32
"""Shortest common run of uncached tokens that is worth a pass of its own, and least saving that makes a stem, in tokens."""
_CHUNK = 512
"""Most tokens of one request in one pass."""
_PASS = 4096
"""Most tokens of one pass, padding included."""


@dataclass(slots=True)
class _Job:
    """A row to fill: ``tokens`` from absolute position ``done`` on; ``hidden`` is that of the last token at the end."""

    row: int
    tokens: Ids
    done: int
    stem_slot: int = -1
    stem_length: int = 0
    hidden: Tensor | None = None


class Prefill:
    """Fills rows. ``tree`` and ``memory`` belong together: every slot of the tree is a filled slot of the pool."""

    def __init__(self, model: Qwen3, memory: KVMemory, tree: PrefixTree, rows: Rows) -> None:
        self._model, self._memory, self._tree, self._rows = model, memory, tree, rows
        self._group = model.config.num_heads // model.config.num_kv_heads

    def admit(self, requests: Sequence[GenerationRequest], eos: tuple[int, ...]) -> list[tuple[int, dict[str, Any]]]:
        """Place ``requests`` (at most as many as there are vacant rows), compute their prompts and sample their next token.

        Returns the rows that ended with that token, and why.
        """
        vacant = self._rows.vacant()[: len(requests)]
        assert len(vacant) == len(requests)
        self._tree.tick()
        known = [r.known_tokens() for r in requests]
        cached = self._share(known, vacant)
        matches = [self._tree.match(tokens[:-1]) for tokens in known]
        depths = self._choose_stems(known, matches)
        jobs = []
        for request, row, tokens, match, depth, was_cached in zip(
            requests, vacant, known, matches, depths, cached, strict=True
        ):
            self._rows.place(row, request, eos)
            if not request.admitted:
                request.admitted, request.cached_tokens = True, was_cached
            self._attach(row, tokens, match, depth)
            jobs.append(_Job(row, tokens, match.length, int(self._rows.stem_slot[row]), depth))
        self._load(jobs, matches)
        self._compute(jobs)
        for job in jobs:
            self._rows.own_length[job.row] = len(job.tokens) - job.stem_length
        self.remember([(job.row, job.tokens, job.stem_length) for job in jobs])
        rows = np.asarray(vacant, np.int64)
        params, noise = self._rows.sampler_input(rows)
        hidden = torch.stack([job.hidden for job in jobs if job.hidden is not None])
        tokens_out, logprobs = sample(self._model.logits(hidden), params, noise)
        return self._rows.record(rows, tokens_out, logprobs)

    def remember(self, items: Sequence[tuple[int, Ids, int]]) -> None:
        """Cache the tokens of rows: ``(row, tokens, stem length)``, whose keys and values are all in row and stem."""
        units, positions, slots = [], [], []
        for row, tokens, stem_length in items:
            known, new = self._tree.insert(tokens, known_at_least=stem_length)
            if len(new):
                units.append(np.full(len(new), row, np.int64))
                positions.append(np.arange(known - stem_length, known - stem_length + len(new)))
                slots.append(new)
        if slots:
            self._memory.store(*(torch.from_numpy(np.concatenate(part)) for part in (units, positions, slots)))

    # -- shared prefixes -------------------------------------------------------------------------------------------------

    def _share(self, known: Sequence[Ids], vacant: Sequence[int]) -> list[int]:
        """Compute every prefix that two or more of ``known`` share and nobody has cached, once each.

        One round per level: first what all share, then what parts of them share, and so on. Returns how many tokens of each
        were cached when its turn came; the first sharer of a prefix is the one that pays for it.
        """
        cached = [self._tree.match(tokens[:-1]).length for tokens in known]
        lengths = list(cached)
        while True:
            groups: dict[bytes, list[int]] = defaultdict(list)
            for i, tokens in enumerate(known):
                if len(tokens) - 1 - lengths[i] >= _SHARED_AT_LEAST:
                    groups[tokens[: lengths[i] + _SHARED_AT_LEAST].tobytes()].append(i)
            shared = [members for members in groups.values() if len(members) > 1]
            if not shared:
                return cached
            stems = [known[m[0]][: _common_length([known[i][:-1] for i in m])] for m in shared]
            matches = [self._tree.match(tokens) for tokens in stems]
            jobs = [_Job(row, tokens, match.length)
                    for row, tokens, match in zip(vacant, stems, matches, strict=False)]
            self._load(jobs, matches)
            self._compute(jobs)
            self.remember([(job.row, job.tokens, 0) for job in jobs])
            progress = False
            for members in shared:
                for i in members:
                    now = self._tree.match(known[i][:-1]).length
                    progress |= now > lengths[i]
                    lengths[i] = now
                    if i != members[0]:
                        cached[i] = now
            if not progress:  # the pool is too small to hold them
                return cached

    def _choose_stems(self, known: Sequence[Ids], matches: Sequence[Match]) -> list[int]:
        """How many leading tokens of each request to read as a shared stem (0: none).

        A stem of ``d`` tokens with ``n`` users saves each of them the reading of ``d (1 - 1/n)`` tokens a step.
        """
        prefixes = [{d: tokens[:d].tobytes() for d in {*match.branches, match.length} if d >= _SHARED_AT_LEAST}
                    for tokens, match in zip(known, matches, strict=True)]
        users = Counter(prefix for candidates in prefixes for prefix in candidates.values())
        chosen = []
        for candidates in prefixes:
            savings = [(d * (1 - 1 / n), d) for d, prefix in candidates.items()
                       if (n := users[prefix] + self._rows.stems.users(prefix)) > 1]
            best = max(savings, default=(0.0, 0))
            chosen.append(best[1] if best[0] >= _SHARED_AT_LEAST / 2 else 0)
        return chosen

    def _attach(self, row: int, tokens: Ids, match: Match, depth: int) -> None:
        """Point ``row`` to the stem of its first ``depth`` tokens, filling the stem if it is new."""
        self._rows.stem_length[row], self._rows.stem_slot[row] = depth, -1
        if depth == 0:
            return
        slot, fresh = self._rows.stems.acquire(tokens[:depth].tobytes(), depth)
        self._rows.stem_slot[row] = slot
        if fresh:
            self._memory.stems.reserve(slot + 1, depth)
            self._memory.load(self._memory.stems, torch.from_numpy(match.slots[:depth]),
                              torch.full((depth,), slot), torch.arange(depth))

    # -- rows --------------------------------------------------------------------------------------------------------------

    def _load(self, jobs: Sequence[_Job], matches: Sequence[Match]) -> None:
        """Copy what is cached beyond each job's stem into its row."""
        longest = max(len(job.tokens) - job.stem_length for job in jobs)
        self._memory.rows.reserve(max(job.row for job in jobs) + 1, longest + 1)
        slots = [match.slots[job.stem_length :] for job, match in zip(jobs, matches, strict=False)]
        units = [np.full(len(s), job.row, np.int64) for job, s in zip(jobs, slots, strict=True)]
        positions = [np.arange(len(s)) for s in slots]
        if sum(map(len, slots)):
            parts = (torch.from_numpy(np.concatenate(part)) for part in (slots, units, positions))
            self._memory.load(self._memory.rows, *parts)

    def _compute(self, jobs: Sequence[_Job]) -> None:
        """Run the model over everything that ``jobs`` lack, in passes of similar lengths."""
        pending = list(jobs)
        while pending:
            pending.sort(key=lambda job: (job.done - len(job.tokens), job.row))  # longest first
            width = min(len(pending[0].tokens) - pending[0].done, _CHUNK)
            batch = sorted(pending[: max(1, _PASS // width)], key=lambda job: job.row)
            self._pass(batch, width)
            pending = [job for job in pending if job.done < len(job.tokens)]

    def _pass(self, jobs: Sequence[_Job], width: int) -> None:
        counts = np.asarray([min(len(job.tokens) - job.done, width) for job in jobs])
        starts = np.cumsum(counts) - counts
        tokens = np.concatenate([j.tokens[j.done : j.done + n] for j, n in zip(jobs, counts, strict=True)])
        own_starts = np.asarray([job.done - job.stem_length for job in jobs])
        stem_lengths = np.asarray([job.stem_length for job in jobs])
        own = np.repeat(own_starts - starts, counts) + np.arange(len(tokens))
        job_of = np.repeat(np.arange(len(jobs)), counts)
        rows = np.asarray([job.row for job in jobs])
        hidden = self._model.forward(
            torch.from_numpy(tokens.astype(np.int64)), torch.from_numpy(own + stem_lengths[job_of]), self._memory,
            self._own_plan(rows, counts, starts, own_starts, own, job_of, width),
            stem_plan(np.asarray([job.stem_slot for job in jobs])[job_of], self._rows.stems),
        )
        for job, start, n in zip(jobs, starts, counts, strict=True):
            job.done += int(n)
            job.hidden = hidden[int(start + n - 1)]

    def _own_plan(
        self, rows: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], starts: npt.NDArray[np.int64],
        own_starts: npt.NDArray[np.int64], own: npt.NDArray[np.int64], job_of: npt.NDArray[np.int64], width: int,
    ) -> OwnPlan:
        """Padding repeats the last token of a row, so that no query is fully masked."""
        grid = self._memory.rows
        step = np.minimum(np.arange(width), counts[:, None] - 1)
        length = aligned(int(own.max()) + 1, grid.length)
        mask = causal_mask(torch.from_numpy(own_starts[:, None] + step), length)
        touching = int(rows[-1]) - int(rows[0]) + 1 == len(rows)
        return OwnPlan(
            rows=slice(int(rows[0]), int(rows[-1]) + 1) if touching else torch.from_numpy(rows), length=length,
            mask=mask.repeat_interleave(self._group, dim=1).unsqueeze(1),
            write=grid.flat_index(torch.from_numpy(rows[job_of]), torch.from_numpy(own)), width=width,
            pad=torch.from_numpy((starts[:, None] + step).reshape(-1)),
            unpad=torch.from_numpy(job_of * width + np.arange(len(own)) - starts[job_of]),
        )


def _common_length(sequences: Sequence[Ids]) -> int:
    """Length of the common prefix of all."""
    first, shortest = sequences[0], min(map(len, sequences))
    for other in sequences[1:]:
        different = np.flatnonzero(first[:shortest] != other[:shortest])
        if len(different):
            shortest = int(different[0])
    return shortest
