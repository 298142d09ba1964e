"""Seeds are functions of names."""

import subprocess
import sys

from hypothesis import given, strategies as st

from spade_agentic.rollout.seeding import INSTANCE_SEEDS, instance_seeds, stable_seed

PARTS = st.lists(st.one_of(st.text(max_size=5), st.integers(-5, 2000)), max_size=4)


@given(PARTS, PARTS)
def test_different_names_give_different_seeds(a, b):
    assert (stable_seed(*a) == stable_seed(*b)) == (a == b)
    assert 0 <= stable_seed(*a) < 2**63


def test_a_seed_is_the_same_in_another_process():
    code = "from spade_agentic.rollout.seeding import stable_seed; print(stable_seed(3, 't', 'x'))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(other.stdout) == stable_seed(3, "t", "x")


@given(count=st.integers(0, 40), name=st.text(max_size=4))
def test_instance_seeds_are_different_and_below_those_of_evaluation(count, name):
    seeds = instance_seeds(count, name)
    assert len(set(seeds)) == count
    assert all(0 <= seed < INSTANCE_SEEDS for seed in seeds)
    assert instance_seeds(count, name) == seeds


def test_training_and_evaluation_draw_from_either_side_of_the_same_number():
    from spade_agentic_sims.kit import HELD_OUT_SEED

    assert HELD_OUT_SEED == INSTANCE_SEEDS
