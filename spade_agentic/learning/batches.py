"""From sequences to micro-batches: packed rows under a token budget, with shared prefixes computed once.

Sequences are sorted by their tokens, so that those with a common beginning lie side by side, and cut into rows of at
most ``token_budget`` tokens. Within a row they form prefix trees (:mod:`spade_agentic.learning.attention`): the system
prompt and tools that all plays of a domain share, below it the instance that the plays of a group share, below it what
each play said. Sharing is found from the tokens themselves; a wrong ``prefix_key`` is refused, a missing one costs
nothing. Because of the sorting, the order of the batch does not matter, bit for bit.

What is trained is a list of pairs (source, target): the hidden state at row position ``source`` predicts ``target``.
Where a play's first token follows a shared prompt, many pairs have the same source. Tokens behind the last trained one
are not computed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import LearnerError
from ..hooks.kinds import TrainSequence
from ..hooks.records import Role
from .attention import Node, TreeLayout

__all__ = ["MIN_SHARED_TOKENS", "ROLES", "MicroBatch", "check_batch", "pack", "pad", "split_minibatches"]

ROLES: tuple[Role, ...] = (Role.AGENT, Role.DESIGNER)
"""Index of a role in :attr:`MicroBatch.role`."""

MIN_SHARED_TOKENS = 16
"""A common beginning shorter than this is computed again: one more attention call per layer would cost more."""

_Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one forward and backward pass computes.

    ``token_ids`` and ``position_ids`` are ``[rows, width]``: one packed row with its ``layout``, or padded rows and
    ``layout=None``. All else is ``[n]`` over the trained tokens; ``source`` indexes ``token_ids.flatten()``.
    ``sequence`` indexes ``sequence_ids``.
    """

    token_ids: Tensor
    position_ids: Tensor
    layout: TreeLayout | None
    source: Tensor
    target: Tensor
    advantage: Tensor
    weight: Tensor
    temperature: Tensor
    rollout_logprobs: Tensor
    role: Tensor
    sequence: Tensor
    sequence_ids: tuple[str, ...]

    @property
    def trained_tokens(self) -> int:
        return self.target.numel()

    @property
    def computed_tokens(self) -> int:
        return self.token_ids.numel()

    def to(self, device: torch.device) -> MicroBatch:
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)}
        return MicroBatch(**values)


def check_batch(batch: Sequence[TrainSequence]) -> None:
    """Refuse a batch that cannot mean what it says.

    Raises:
        LearnerError: it is empty; ids, mask and log-probs differ in length; a sequence trains nothing, or its first
            token, or twice under one id; a number is not finite; the temperature is not positive; a log-prob is
            positive; sequences with one ``prefix_key`` differ in their prefix.
    """
    if not batch:
        raise LearnerError("the batch is empty: no sequence to train on")
    prefixes: dict[str, tuple[int, ...]] = {}
    seen: set[str] = set()
    for sequence in batch:
        problem = _problem(sequence)
        if problem is None and sequence.sequence_id in seen:
            problem = "is in the batch twice"
        if problem is None and sequence.prefix_key is not None:
            prefix = sequence.token_ids[: sequence.prefix_len]
            if prefixes.setdefault(sequence.prefix_key, prefix) != prefix:
                problem = f"does not begin like the others with prefix_key {sequence.prefix_key!r}"
        if problem is not None:
            raise LearnerError(f"sequence {sequence.sequence_id!r} of role {sequence.role} {problem}")
        seen.add(sequence.sequence_id)


def _problem(sequence: TrainSequence) -> str | None:
    n = len(sequence.token_ids)
    if not n == len(sequence.mask) == len(sequence.rollout_logprobs):
        return f"has {n} ids, {len(sequence.mask)} mask entries and {len(sequence.rollout_logprobs)} log-probs"
    if not any(sequence.mask):
        return "has no sampled token: its mask is all false"
    if sequence.mask[0]:
        return "trains its first token, which nothing predicts"
    if not (math.isfinite(sequence.advantage) and math.isfinite(sequence.weight) and sequence.weight >= 0):
        return f"has advantage {sequence.advantage} and weight {sequence.weight}"
    if not (math.isfinite(sequence.temperature) and sequence.temperature > 0):
        return f"was sampled at temperature {sequence.temperature}; only sampled tokens can be trained"
    if not 0 <= sequence.prefix_len <= n:
        return f"has prefix_len {sequence.prefix_len} and {n} tokens"
    logprobs = np.asarray(sequence.rollout_logprobs)[np.asarray(sequence.mask)]
    if not np.isfinite(logprobs).all() or logprobs.max() > 1e-4:
        return "has a rollout log-prob that is not finite, or positive"
    return None


def pack(batch: Sequence[TrainSequence], token_budget: int, *, share: bool = True) -> list[MicroBatch]:
    """Packed rows of at most ``token_budget`` computed tokens each (a longer sequence gets a row of its own).

    With ``share`` false every sequence is computed alone in its row. The batch must have passed :func:`check_batch`.
    """
    ordered = sorted(batch, key=lambda s: (s.token_ids, s.sequence_id))
    inputs = [_inputs(s) for s in ordered]
    common = [0] + [_common(a, b) if share else 0 for a, b in pairwise(inputs)]
    rows: list[MicroBatch] = []
    first = 0
    for i in range(1, len(inputs)):
        used = _row_size(inputs, common, first, i)
        # A tree is cut only where it must be, for its prefix is computed again in the next row.
        starts_tree = common[i] < MIN_SHARED_TOKENS and 2 * used > token_budget
        if _row_size(inputs, common, first, _tree_end(common, i) if starts_tree else i + 1) > token_budget:
            rows.append(_packed_row(ordered[first:i], inputs[first:i], common[first:i]))
            first = i
    rows.append(_packed_row(ordered[first:], inputs[first:], common[first:]))
    return rows


def pad(batch: Sequence[TrainSequence], token_budget: int) -> list[MicroBatch]:
    """Rows of one sequence each, padded on the right to the longest of the micro-batch, which a causal model ignores.

    For models whose attention cannot be replaced. The batch must have passed :func:`check_batch`.
    """
    ordered = sorted(batch, key=lambda s: (len(_inputs(s)), s.token_ids, s.sequence_id))
    result: list[MicroBatch] = []
    pending: list[TrainSequence] = []
    for sequence in ordered:
        if pending and (len(pending) + 1) * len(_inputs(sequence)) > token_budget:
            result.append(_padded_rows(pending))
            pending = []
        pending.append(sequence)
    result.append(_padded_rows(pending))
    return result


def split_minibatches(batch: Sequence[TrainSequence], parts: int, order: Sequence[int]) -> list[list[TrainSequence]]:
    """Disjoint minibatches for ``parts`` updates; each gets its share of the trained tokens of every role.

    Sequences with one ``prefix_key`` stay together. ``order`` is a permutation of ``range(len(batch))`` that says in which
    order groups are dealt, each to the minibatch that has the fewest trained tokens of that role so far. Parts that
    stay empty are left out.
    """
    assert sorted(order) == list(range(len(batch)))
    ordered = sorted(batch, key=lambda s: s.sequence_id)
    groups: dict[tuple[Role, str], list[TrainSequence]] = defaultdict(list)
    for i in order:
        sequence = ordered[i]
        key = f"prefix {sequence.prefix_key}" if sequence.prefix_key is not None else f"id {sequence.sequence_id}"
        groups[sequence.role, key].append(sequence)
    result: list[list[TrainSequence]] = [[] for _ in range(parts)]
    load = {role: [0] * parts for role in ROLES}
    for (role, _), members in groups.items():
        smallest = min(range(parts), key=lambda p: (load[role][p], p))
        load[role][smallest] += sum(sum(s.mask) for s in members)
        result[smallest].extend(members)
    return [part for part in result if part]


# --- rows ------------------------------------------------------------------------------------------------------------


def _inputs(sequence: TrainSequence) -> _Ints:
    """The tokens that must be computed: all before the last trained one."""
    last = max(i for i, trained in enumerate(sequence.mask) if trained)
    return np.asarray(sequence.token_ids[:last], dtype=np.int64)


def _common(a: _Ints, b: _Ints) -> int:
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


def _tree_end(common: Sequence[int], first: int) -> int:
    """Where the tree ends that begins with sequence ``first``."""
    end = first + 1
    while end < len(common) and common[end] >= MIN_SHARED_TOKENS:
        end += 1
    return end


def _branch(
    inputs: Sequence[_Ints], common: Sequence[int], low: int, high: int, depth: int
) -> tuple[int, list[tuple[int, int]]]:
    """How far sequences ``[low, high)``, equal up to ``depth``, are laid as one node, and into which parts they fork there.

    A single sequence is one node to its end, and has no parts.
    """
    if high - low == 1:
        return len(inputs[low]), []
    shared = min([len(inputs[low]), *common[low + 1 : high]])
    if shared - depth < MIN_SHARED_TOKENS:
        shared = depth
    cuts = [i for i in range(low + 1, high) if common[i] - shared < MIN_SHARED_TOKENS]
    return shared, list(zip([low, *cuts], [*cuts, high], strict=True))


def _row_size(inputs: Sequence[_Ints], common: Sequence[int], low: int, high: int, depth: int = 0) -> int:
    """Computed tokens of a row of sequences ``[low, high)``."""
    end, parts = _branch(inputs, common, low, high, depth)
    return end - depth + sum(_row_size(inputs, common, a, b, end) for a, b in parts)


@dataclass(slots=True)
class _Trees:
    """The growing row: nodes, the tokens and positions in them, and for each sequence the row position of each token."""

    inputs: Sequence[_Ints]
    common: Sequence[int]
    nodes: list[Node]
    tokens: list[_Ints]
    positions: list[_Ints]
    paths: list[_Ints]
    size: int = 0

    def grow(self, low: int, high: int, depth: int, path: _Ints) -> None:
        """Lay out sequences ``[low, high)``, whose first ``depth`` tokens already lie at ``path``."""
        end, parts = _branch(self.inputs, self.common, low, high, depth)
        index, start = len(self.nodes), self.size
        self.size += end - depth
        if end > depth:
            self.nodes.append(Node(start, self.size, self.size))
            self.tokens.append(self.inputs[low][depth:end])
            self.positions.append(np.arange(depth, end))
            path = np.concatenate([path, np.arange(start, self.size)])
        if not parts:
            self.paths.append(path)
            return
        for a, b in parts:
            self.grow(a, b, end, path)
        if end > depth:
            self.nodes[index] = Node(start, self.nodes[index].end, self.size)


def _packed_row(batch: Sequence[TrainSequence], inputs: Sequence[_Ints], common: Sequence[int]) -> MicroBatch:
    trees = _Trees(inputs, common, [], [], [], [])
    trees.grow(0, len(inputs), 0, np.arange(0))
    return _micro_batch(
        batch, trees.paths, np.concatenate(trees.tokens)[None], np.concatenate(trees.positions)[None],
        TreeLayout(tuple(trees.nodes), trees.size),
    )


def _padded_rows(batch: Sequence[TrainSequence]) -> MicroBatch:
    inputs = [_inputs(s) for s in batch]
    width = max(map(len, inputs))
    tokens = np.stack([np.pad(x, (0, width - len(x))) for x in inputs])
    paths = [np.arange(i * width, i * width + len(x)) for i, x in enumerate(inputs)]
    return _micro_batch(batch, paths, tokens, np.tile(np.arange(width), (len(batch), 1)), None)


def _micro_batch(
    batch: Sequence[TrainSequence], paths: Sequence[_Ints], tokens: np.ndarray, positions: np.ndarray,
    layout: TreeLayout | None,
) -> MicroBatch:
    trained = [np.flatnonzero(np.asarray(s.mask)) for s in batch]
    counts = [len(t) for t in trained]

    def each(values: Iterable[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(list(values), dtype=dtype).repeat_interleave(torch.tensor(counts))

    def picked(values: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
        parts = [np.asarray(v)[t] for v, t in zip(values, trained, strict=True)]
        return torch.tensor(np.concatenate(parts), dtype=dtype)

    return MicroBatch(
        token_ids=torch.from_numpy(tokens),
        position_ids=torch.from_numpy(positions),
        layout=layout,
        source=torch.from_numpy(np.concatenate([p[t - 1] for p, t in zip(paths, trained, strict=True)])),
        target=picked([s.token_ids for s in batch], torch.int64),
        advantage=each((s.advantage for s in batch), torch.float32),
        weight=each((s.weight for s in batch), torch.float32),
        temperature=each((s.temperature for s in batch), torch.float32),
        rollout_logprobs=picked([s.rollout_logprobs for s in batch], torch.float32),
        role=each((ROLES.index(s.role) for s in batch), torch.int64),
        sequence=each(range(len(batch)), torch.int64),
        sequence_ids=tuple(s.sequence_id for s in batch),
    )
