"""Regret is paired: both arms play the same seeds, and the error is over per-seed differences."""

import math
import random
import statistics

import pytest
from hypothesis import given, settings, strategies as st
from play_fakes import InProcessSandbox, ScriptedEngine, door, door_policy, in_pool, make_play

from spade_agentic.hooks.records import Arm, Sampling, StopReason
from spade_agentic.rollout.runner import RolloutRunner, pair_requests
from spade_agentic.selfplay.regret import PlayRecord, paired_regret


def records(returns, *, arm):
    """``returns[seed][repeat]``; ``None`` is a void play."""
    return [
        PlayRecord.of(make_play("e", seed, repeat, arm, value if value is not None else 0.0,
                                stop=StopReason.ENVIRONMENT_FAULT if value is None else StopReason.ANSWERED))
        for seed, row in enumerate(returns)
        for repeat, value in enumerate(row)
    ]


def regret_of(plain, hinted, **options):
    return paired_regret(
        [*records(plain, arm=Arm.PLAIN), *records(hinted, arm=Arm.HINTED)], **{"min_pairs": 1, **options}
    )


def test_regret_is_the_mean_of_per_seed_differences():
    regret = regret_of([[0, 1], [0, 0]], [[1, 1], [0, 1]])
    assert regret.mean == 0.5
    assert (regret.pairs, regret.hinted_mean, regret.plain_mean) == (2, 0.75, 0.25)


def test_the_standard_error_is_over_per_seed_differences_and_not_over_plays():
    """Two seeds that differ from each other, with four repeats that all agree: eight plays are two observations."""
    regret = regret_of([[0] * 4, [1] * 4], [[1] * 4, [1] * 4])
    assert regret.stderr == pytest.approx(statistics.stdev([1.0, 0.0]) / math.sqrt(2))


def test_instances_of_different_difficulty_do_not_add_to_the_error():
    """An unpaired error would see the spread of the seeds themselves."""
    regret = regret_of([[0.0], [0.5], [-0.5]], [[0.25], [0.75], [-0.25]])
    assert regret.mean == pytest.approx(0.25)
    assert regret.stderr == pytest.approx(0.0)


def test_the_mean_is_unfloored():
    """A floor at 0 would pay a designer for noise."""
    assert regret_of([[1], [1]], [[0], [1]]).mean == -0.5


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_the_mean_regret_of_noise_is_zero_because_nothing_is_floored(seed):
    """Averaged over many environments with equal arms; the floored mean of the same numbers is far above its error."""
    rng = random.Random(seed)

    def arm():
        return [[float(rng.random() < 0.5) for _ in range(4)] for _ in range(4)]

    means = [regret_of(arm(), arm()).mean for _ in range(200)]
    error = statistics.stdev(means) / math.sqrt(len(means))
    assert abs(statistics.fmean(means)) < 5 * error
    assert statistics.fmean(max(0.0, m) for m in means) > 3 * error


def test_an_environment_fault_voids_the_pair_in_both_arms():
    """A crash in the hinted arm takes its plain twin along, however good that was."""
    regret = regret_of([[1, 0], [0, 0]], [[None, 1], [1, 1]])
    assert regret.pairs == 2
    assert (regret.hinted_mean, regret.plain_mean) == (1.0, 0.0)


def test_a_seed_without_a_surviving_pair_is_no_seed():
    assert regret_of([[1], [0]], [[None], [1]]).pairs == 1


def test_too_few_surviving_pairs_give_no_regret():
    """The reference gave regret = r_hint to a group without surviving plain plays."""
    assert regret_of([[None], [None], [0]], [[1], [1], [1]], min_pairs=2) is None
    assert regret_of([], [[1]]) is None


def test_an_arm_without_its_twin_counts_for_nothing():
    """Later steps of an interval are played plain only: they are not half a pair."""
    plays = [*records([[0], [0]], arm=Arm.PLAIN), *records([[1]], arm=Arm.HINTED)]
    assert paired_regret(plays, min_pairs=1).pairs == 1


def test_the_error_of_a_single_seed_is_infinite():
    assert regret_of([[0, 1]], [[1, 1]]).stderr == math.inf


@pytest.mark.parametrize(("gap", "pairs"), [(0, 1), (1, 2), (5, 2)])
def test_a_pair_whose_weight_versions_differ_too_much_is_dropped(gap, pairs):
    plays = [
        PlayRecord.of(make_play("e", seed, 0, arm, float(arm is Arm.HINTED), version=version))
        for seed, versions in enumerate([(3, 3), (3, 4)])
        for arm, version in zip(Arm, versions, strict=True)
    ]
    assert paired_regret(plays, min_pairs=1, version_gap=gap).pairs == pairs


def test_no_play_is_counted_twice():
    play = PlayRecord.of(make_play())
    with pytest.raises(AssertionError, match="played twice"):
        paired_regret([play, play], min_pairs=1)


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=2, max_size=8), st.randoms(use_true_random=False)
)
def test_the_order_of_the_plays_does_not_matter(pairs, rng):
    plays = [*records([[p] for p, _ in pairs], arm=Arm.PLAIN), *records([[h] for _, h in pairs], arm=Arm.HINTED)]
    shuffled = list(plays)
    rng.shuffle(shuffled)
    assert paired_regret(plays, min_pairs=1) == paired_regret(shuffled, min_pairs=1)


# --- both arms through the real rollout path ---------------------------------------------------------------------------


async def play_pairs(rendering, hint, policy, *, seeds=8, repeats=4):
    engine = ScriptedEngine(rendering.tokenizer, policy)
    runner = RolloutRunner(
        engine=engine, rendering=rendering, sandbox=InProcessSandbox(), run_seed=3, context_tokens=4096, slots=64,
        deterministic=True,
    )
    environment = in_pool(door(), hint=hint)
    units = [
        pair_requests(environment, seed, repeat, arms=list(Arm), label="t0")
        for seed in range(seeds)
        for repeat in range(repeats)
    ]
    plays = [play for unit in await runner.play("b", units, Sampling(max_tokens=512)) for play in unit]
    return plays, paired_regret(map(PlayRecord.of, plays), min_pairs=2)


async def test_both_arms_play_the_same_instances(rendering):
    """The reference compared 340 plays of one instance with 384 plays of 384."""
    plays, _ = await play_pairs(rendering, "Say the key.", door_policy(lambda level: 0.5))
    seen = {arm: [(p.seed, p.repeat, p.first_observation) for p in plays if p.arm is arm] for arm in Arm}
    assert seen[Arm.PLAIN] == seen[Arm.HINTED]
    assert len({text for _, _, text in seen[Arm.PLAIN]}) == 8, "different seeds are different instances"


async def test_a_null_hint_gives_zero_regret_exactly(rendering):
    """Both arms of a pair share their noise, so that nothing but the hint can make a difference."""
    _, regret = await play_pairs(rendering, "", door_policy(lambda level: 0.5))
    assert (regret.mean, regret.stderr) == (0.0, 0.0)


async def test_a_hint_that_says_nothing_useful_gives_zero_regret_within_its_error(rendering):
    _, regret = await play_pairs(rendering, "It is a door.", door_policy(lambda level: 0.5, hinted=0.5), seeds=16)
    assert abs(regret.mean) <= 3 * regret.stderr + 1e-12


async def test_a_useful_hint_gives_positive_regret(rendering):
    _, regret = await play_pairs(rendering, "Say the key.", door_policy(lambda level: 0.25))
    assert regret.mean > 3 * regret.stderr > 0


async def test_regret_vanishes_on_solved_and_on_unsolvable_environments(rendering):
    for chance in (1.0, 0.0):
        _, regret = await play_pairs(rendering, "Say the key.", door_policy(lambda level, c=chance: c, hinted=chance))
        assert regret.mean == 0.0
