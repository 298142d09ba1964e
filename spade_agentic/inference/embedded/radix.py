"""The prefix tree: which pool slots hold the keys and values of which token prefix.

Every node carries a run of tokens and their slots; children differ in their first token. Recency is a logical clock, never
wall time, and ties fall to the older node, so that eviction is a function of the requests alone. What was touched in the
current tick is never evicted: whoever holds slots from this tick may still read or fill them.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["Match", "PrefixTree"]

Ids = npt.NDArray[np.int32]
Slots = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class _Node:
    tokens: Ids
    slots: Slots
    parent: _Node | None
    serial: int
    last_used: int = 0
    children: dict[int, _Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached prefix of a prompt: its ``slots``, and the depths at which the tree branches along it."""

    slots: Slots
    branches: tuple[int, ...]

    @property
    def length(self) -> int:
        return len(self.slots)


class PrefixTree:
    """Maps token prefixes to at most ``capacity`` pool slots."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.reset()

    def reset(self) -> None:
        """Forget everything, the clock too."""
        self._serial = itertools.count()
        self._root = _Node(np.empty(0, np.int32), np.empty(0, np.int64), None, next(self._serial))
        self._free = np.arange(self.capacity - 1, -1, -1, dtype=np.int64)
        self._free_count = self.capacity
        self._clock = 0

    @property
    def used(self) -> int:
        """Tokens cached now."""
        return self.capacity - self._free_count

    def tick(self) -> None:
        """Begin the next admission or retirement: slots handed out before may be evicted from now on."""
        self._clock += 1

    def match(self, tokens: Ids) -> Match:
        """The longest cached prefix of ``tokens``; touches the nodes on its path."""
        node, depth, parts, branches = self._root, 0, [], []
        while depth < len(tokens):
            child = node.children.get(int(tokens[depth]))
            if child is None:
                break
            child.last_used = self._clock
            same = _common(child.tokens, tokens[depth:])
            parts.append(child.slots[:same])
            depth += same
            if same < len(child.tokens):
                break
            node = child
            if len(node.children) > 1:
                branches.append(depth)
        return Match(np.concatenate(parts) if parts else np.empty(0, np.int64), tuple(branches))

    def insert(self, tokens: Ids, *, known_at_least: int = 0) -> tuple[int, Slots]:
        """Give ``tokens`` a place in the tree.

        Returns ``(known, slots)``: the first ``known`` tokens were cached already and ``slots`` are new slots for those that
        follow, which the caller must fill. Where the pool cannot hold them all, only the first of them get slots; where
        fewer than ``known_at_least`` are cached, none do.
        """
        node, depth = self._root, 0
        while depth < len(tokens):
            child = node.children.get(int(tokens[depth]))
            if child is None:
                break
            child.last_used = self._clock
            same = _common(child.tokens, tokens[depth:])
            if same < len(child.tokens):
                child = self._split(child, same)
            depth += same
            node = child
        if depth < known_at_least:
            return depth, np.empty(0, np.int64)
        slots = self._allocate(len(tokens) - depth)
        if len(slots):
            rest = tokens[depth : depth + len(slots)].copy()
            node.children[int(rest[0])] = _Node(rest, slots, node, next(self._serial), self._clock)
        return depth, slots

    def _split(self, node: _Node, at: int) -> _Node:
        """Cut ``node`` after ``at`` tokens and return the upper half."""
        assert node.parent is not None
        upper = _Node(node.tokens[:at], node.slots[:at], node.parent, next(self._serial), node.last_used)
        upper.children[int(node.tokens[at])] = node
        node.parent.children[int(node.tokens[0])] = upper
        node.tokens, node.slots, node.parent = node.tokens[at:], node.slots[at:], upper
        return upper

    def _allocate(self, count: int) -> Slots:
        if count > self._free_count:
            self._evict(count - self._free_count)
        count = min(count, self._free_count)
        self._free_count -= count
        return self._free[self._free_count : self._free_count + count][::-1].copy()

    def _evict(self, count: int) -> None:
        """Free at least ``count`` slots, least recently used leaves first, as far as leaves older than this tick go."""
        heap = [(n.last_used, n.serial, n) for n in self._leaves() if n.last_used < self._clock]
        heapq.heapify(heap)
        while heap and count > 0:
            _, _, node = heapq.heappop(heap)
            parent = node.parent
            assert parent is not None
            del parent.children[int(node.tokens[0])]
            size = len(node.slots)
            self._free[self._free_count : self._free_count + size] = node.slots
            self._free_count += size
            count -= size
            if not parent.children and parent is not self._root and parent.last_used < self._clock:
                heapq.heappush(heap, (parent.last_used, parent.serial, parent))

    def _leaves(self) -> list[_Node]:
        leaves, stack = [], list(self._root.children.values())
        while stack:
            node = stack.pop()
            if node.children:
                stack.extend(node.children.values())
            else:
                leaves.append(node)
        return leaves


def _common(a: Ids, b: Ids) -> int:
    """Length of the common prefix."""
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n
