"""``benchmarks/paired_regret.py``: its estimator finds a cost that is known, and its pairs are the run's pairs."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import paired_regret as bench
import pytest
from hypothesis import given, strategies as st

from spade_agentic import Arm
from spade_agentic.hooks.records import StopReason
from spade_agentic.selfplay.regret import PlayRecord, paired_regret

SEEDS, REPEATS = 8, 4


def environment(rng: random.Random, parts: bench.Parts, *, seeds: int = SEEDS) -> list[bench.Pairs]:
    """Returns whose parts are known: both arms have the same two variances here, and share what ``*_shared`` says."""

    def two(variance: float, shared: float) -> tuple[float, float]:
        common = rng.gauss(0, shared**0.5)
        return common + rng.gauss(0, (variance - shared) ** 0.5), common + rng.gauss(0, (variance - shared) ** 0.5)

    made = []
    for _ in range(seeds):
        instance = two(parts.instance_plain, parts.instance_shared)
        noise = [two(parts.noise_plain, parts.noise_shared) for _ in range(REPEATS)]
        made.append([(0.7 + instance[0] + hinted, 0.4 + instance[1] + plain) for hinted, plain in noise])
    return made


def known(instance: float, instance_shared: float, noise: float, noise_shared: float) -> bench.Parts:
    return bench.Parts(REPEATS, instance, instance, instance_shared, noise, noise, noise_shared)


CASES = [
    (known(0.2, 0.0, 0.4, 0.0), 1.0),  # independent arms: pairing saves nothing
    (known(0.2, 0.2, 0.0, 0.0), 0.0),  # arms that differ by a constant: it saves everything
    (known(0.2, 0.2, 0.4, 0.0), 1 / 3),  # of var .2 + .4 / 4 an arm, .2 is shared
    (known(0.0, 0.0, 0.4, 0.3), 0.25),  # all that is shared is noise
    (known(0.2, 0.1, 0.4, 0.2), 0.5),
]  # fmt: skip


@pytest.mark.parametrize(("truth", "cost"), CASES)
def test_a_known_cost_is_found_with_its_parts(truth: bench.Parts, cost: float) -> None:
    assert truth.paired() / truth.unpaired() == pytest.approx(cost, abs=1e-12)
    rng = random.Random(1)
    found = [bench.parts_of(environment(rng, truth)) for _ in range(1500)]
    assert bench.cost_of(found) == pytest.approx(cost, abs=0.03)
    means = bench.summary(found[:200])["parts"]
    for name, value in means.items():
        assert value == pytest.approx(getattr(truth, name), abs=0.04), name


def test_the_price_of_fewer_repeats_is_that_of_plays_with_fewer_repeats() -> None:
    truth = known(0.1, 0.08, 0.4, 0.1)
    rng = random.Random(2)
    found = bench.designs_of([bench.parts_of(environment(rng, truth)) for _ in range(3000)], resamples=20)
    unit = truth.unpaired(1)
    assert [row["repeats"] for row in found] == [1, 2, 4]
    assert all(row["cost_low"] < row["cost"] < row["cost_high"] for row in found)
    for row in found:
        repeats = int(row["repeats"])
        assert row["paired"] == pytest.approx(repeats * truth.paired(repeats) / unit, rel=0.05)
        assert row["unpaired"] == pytest.approx(repeats * truth.unpaired(repeats) / unit, rel=0.05)


def test_the_interval_holds_the_known_cost_about_as_often_as_it_says() -> None:
    truth, held, trials = known(0.2, 0.1, 0.4, 0.2), 0, 120
    rng = random.Random(3)
    for _ in range(trials):
        found = [bench.parts_of(environment(rng, truth)) for _ in range(24)]
        low, high = bench.interval_of(found, resamples=200)
        held += low <= 0.5 <= high
    assert 0.85 * trials <= held <= trials, "95 % in the limit of many environments; somewhat less over 24"


def test_pairs_that_tell_nothing_are_refused() -> None:
    still = bench.parts_of([[(1.0, 0.0), (1.0, 0.0)], [(1.0, 0.0), (1.0, 0.0)]])
    moving = bench.parts_of([[(1.0, 0.0), (1.0, 1.0)], [(0.0, 0.0), (1.0, 0.0)]])
    with pytest.raises(ValueError, match="fewer than two environments"):
        bench.interval_of([still, moving, still])
    for seeds in ([[(1.0, 0.0), (1.0, 0.0)]], [[(1.0, 0.0)], [(0.0, 0.0)]], [[(1.0, 0.0)] * 2, [(0.0, 0.0)] * 3], []):
        with pytest.raises(ValueError, match="two seeds or more"):
            bench.parts_of(seeds)


won_or_lost = st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0]))
some_seeds = st.integers(2, 4).flatmap(
    lambda repeats: st.lists(st.lists(won_or_lost, min_size=repeats, max_size=repeats), min_size=2, max_size=6)
)


@given(some_seeds)
def test_the_paired_variance_is_that_of_the_regret_of_a_run(seeds: list[bench.Pairs]) -> None:
    plays = [
        PlayRecord(f"{s}-{r}-{arm}", s, r, arm, value, value == 1.0, StopReason.ANSWERED)
        for s, pairs in enumerate(seeds)
        for r, (hinted, plain) in enumerate(pairs)
        for arm, value in ((Arm.HINTED, hinted), (Arm.PLAIN, plain))
    ]
    regret = paired_regret(plays, min_pairs=2)
    assert regret is not None
    assert bench.parts_of(seeds).paired() / len(seeds) == pytest.approx(regret.stderr**2, abs=1e-12)


@given(some_seeds, st.sampled_from([0.25, 2.0]), st.sampled_from([-0.5, 0.0, 4.0]), st.randoms(use_true_random=False))
def test_the_variances_depend_on_nothing_but_how_returns_vary(
    seeds: list[bench.Pairs], scale: float, shift: float, rng: random.Random
) -> None:
    parts = bench.parts_of(seeds)
    assert -1e-12 <= parts.paired() <= 2 * parts.unpaired() + 1e-12
    swapped = bench.parts_of([[(p, h) for h, p in pairs] for pairs in seeds])
    moved = bench.parts_of([[(scale * h + shift, scale * p) for h, p in pairs] for pairs in seeds])
    mixed = bench.parts_of(rng.sample([rng.sample(list(pairs), len(pairs)) for pairs in seeds], len(seeds)))
    for other, factor in ((swapped, 1.0), (moved, scale**2), (mixed, 1.0)):
        assert other.paired() == pytest.approx(factor * parts.paired(), abs=1e-9)
        assert other.unpaired() == pytest.approx(factor * parts.unpaired(), abs=1e-9)


@pytest.mark.slow
def test_both_arms_of_the_benchmark_play_the_same_instances_and_the_same_command_gives_the_same_figure(tmp_path: Path) -> None:
    asked = argparse.Namespace(environments=4, seeds=3, repeats=2, seed=0, sandbox="process", model="spade-tiny")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = (bench.measure(asked, tmp_path / name) for name in ("a", "b"))
    assert first["plays"] == 4 * 3 * 2 * 2
    assert [row["seeds"] for row in first["environments"]] == [3, 3, 3, 3]
    assert len({(row["domain"], *row["goals"]) for row in first["environments"]}) > 1
    assert 0 < first["plain"] + first["hinted"] < 2
    assert {k: v for k, v in first.items() if k != "wall_s"} == {k: v for k, v in second.items() if k != "wall_s"}
