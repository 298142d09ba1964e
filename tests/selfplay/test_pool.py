"""The pool changes only when its successor is ready."""

import pytest
from play_fakes import door, in_pool

from spade_agentic.runs.codec import pack, unpack
from spade_agentic.selfplay.pool import Pool


def test_a_slot_that_was_not_filled_keeps_its_environment():
    """A failed regeneration stranded the previous round in the reference."""
    pool = Pool(2)
    old = [in_pool(door(i), f"r0s{i}", i) for i in range(2)]
    pool.swap({e.slot: e for e in old})
    new = in_pool(door(9), "r1s1", 1)
    assert pool.swap({1: new}) == [old[0]]
    assert pool.environments == [old[0], new]


def test_an_environment_only_fits_its_own_slot():
    with pytest.raises(AssertionError):
        Pool(2).swap({0: in_pool(door(), slot=1)})
    with pytest.raises(AssertionError):
        Pool(1).swap({1: in_pool(door(), slot=1)})


def test_the_pool_survives_a_resume_with_skills_and_hints():
    """The reference lost both."""
    pool, resumed = Pool(3), Pool(3)
    pool.swap({2: in_pool(door(4), "r0s2", 2, hint="Say the key.")})
    resumed.load_state_dict(unpack(pack(pool.state_dict())))
    assert resumed.environments == pool.environments
    assert resumed.environments[0].program.origin["level"] == 4
