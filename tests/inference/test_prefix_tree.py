"""The prefix tree against a plain model of what it promises."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from spade_agentic.inference.embedded.radix import PrefixTree

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=12)


def _array(tokens):
    return np.asarray(tokens, np.int32)


def _nodes(tree):
    stack, found = [tree._root], []
    while stack:
        node = stack.pop()
        found.append(node)
        stack.extend(node.children.values())
    return found


class Pool:
    """What a caller writes into the slots: each slot remembers the prefix whose last token it holds."""

    def __init__(self, capacity):
        self.content = [None] * capacity

    def fill(self, tokens, known, slots):
        for i, slot in enumerate(slots):
            self.content[int(slot)] = tuple(tokens[: known + i + 1])

    def check(self, tokens, slots):
        for i, slot in enumerate(slots):
            assert self.content[int(slot)] == tuple(tokens[: i + 1])


@settings(max_examples=300, deadline=None)
@given(capacity=st.integers(1, 40), work=st.lists(st.tuples(st.booleans(), TOKENS), max_size=40))
def test_a_match_holds_what_was_stored_for_exactly_that_prefix(capacity, work):
    tree, pool = PrefixTree(capacity), Pool(capacity)
    for is_insert, tokens in work:
        tree.tick()
        if is_insert:
            known, slots = tree.insert(_array(tokens))
            pool.fill(tokens, known, slots)
        match = tree.match(_array(tokens))
        pool.check(tokens, match.slots)
        assert all(0 < depth <= match.length for depth in match.branches)


@settings(max_examples=300, deadline=None)
@given(capacity=st.integers(1, 40), work=st.lists(TOKENS, max_size=40))
def test_every_slot_is_free_or_in_one_node_and_none_is_lost(capacity, work):
    tree = PrefixTree(capacity)
    for tokens in work:
        tree.tick()
        tree.insert(_array(tokens))
        nodes = _nodes(tree)
        held = [int(s) for node in nodes for s in node.slots]
        free = tree._free[: tree._free_count].tolist()
        assert sorted(held + free) == list(range(capacity))
        assert tree.used == len(held)
        for node in nodes[1:]:
            assert len(node.tokens) == len(node.slots) > 0
        for node in nodes:
            assert all(int(child.tokens[0]) == first for first, child in node.children.items())


@settings(max_examples=200, deadline=None)
@given(first=TOKENS, rest=st.lists(TOKENS, max_size=20), capacity=st.integers(1, 30))
def test_what_was_touched_in_this_tick_is_not_evicted(first, rest, capacity):
    tree = PrefixTree(capacity)
    tree.tick()
    tree.insert(_array(first))
    held = tree.match(_array(first)).slots.tolist()
    for tokens in rest:
        tree.insert(_array(tokens))
        assert tree.match(_array(first)).slots.tolist()[: len(held)] == held


@settings(max_examples=200, deadline=None)
@given(work=st.lists(TOKENS, max_size=30), capacity=st.integers(1, 30))
def test_the_same_work_gives_the_same_slots(work, capacity):
    def run():
        tree, out = PrefixTree(capacity), []
        for tokens in work:
            tree.tick()
            known, slots = tree.insert(_array(tokens))
            out.append((known, slots.tolist()))
        return out

    assert run() == run()


def test_the_least_recently_used_goes_first():
    tree = PrefixTree(6)
    for tokens in ([1, 1, 1], [2, 2, 2]):
        tree.tick()
        tree.insert(_array(tokens))
    tree.tick()
    tree.match(_array([1, 1, 1]))
    tree.tick()
    tree.insert(_array([0, 0, 0]))
    assert tree.match(_array([2, 2, 2])).length == 0
    assert tree.match(_array([1, 1, 1])).length == 3


def test_branches_are_the_depths_where_prompts_part():
    tree = PrefixTree(50)
    tree.tick()
    for tokens in ([1, 1, 1, 2, 2, 2], [1, 1, 1, 0], [1, 1, 1, 2, 0]):
        tree.insert(_array(tokens))
    assert tree.match(_array([1, 1, 1, 2, 2, 2])).branches == (3, 4)
