from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, strategies as st

from spade_agentic.evals.stats import (
    clustered_wilson,
    mean_interval,
    paired_difference,
    pass_at_k,
    pass_hat_k,
    student_t_quantile,
    wilson,
)

counts = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    # Newcombe (1998), table I, method 3, to the digits printed there.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_agrees_with_published_intervals(successes: int, trials: int, low: float, high: float) -> None:
    interval = wilson(successes, trials)
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


@given(counts)
def test_wilson_holds_its_estimate_and_stays_within_zero_and_one(pair: tuple[int, int]) -> None:
    interval = wilson(*pair)
    assert 0.0 <= interval.low <= interval.value <= interval.high <= 1.0


@pytest.mark.parametrize("trials", [20, 64, 256])
def test_wilson_covers_the_truth_in_95_of_100_on_average_over_rates(trials: int) -> None:
    """Exact: the chance of every outcome, summed over those whose interval holds the truth."""
    intervals = [wilson(successes, trials) for successes in range(trials + 1)]
    coverage = []
    for truth in (i / 20 for i in range(1, 20)):
        chances = [math.comb(trials, k) * truth**k * (1 - truth) ** (trials - k) for k in range(trials + 1)]
        assert sum(chances) == pytest.approx(1.0)
        coverage.append(sum(c for c, i in zip(chances, intervals, strict=True) if i.low <= truth <= i.high))
    assert 0.94 < sum(coverage) / len(coverage) < 0.965
    assert min(coverage) > 0.90


@given(counts)
def test_one_trial_a_cluster_is_never_narrower_than_plain_wilson(pair: tuple[int, int]) -> None:
    successes, trials = pair
    clusters = [(1, 1)] * successes + [(0, 1)] * (trials - successes)
    ours, plain = clustered_wilson(clusters), wilson(successes, trials)
    assert ours.value == pytest.approx(plain.value)
    assert ours.high - ours.low >= plain.high - plain.low - 1e-12


@given(st.lists(counts, min_size=1, max_size=20))
def test_clustered_intervals_hold_the_estimate(clusters: list[tuple[int, int]]) -> None:
    interval = clustered_wilson(clusters)
    assert 0.0 <= interval.low <= interval.value <= interval.high <= 1.0
    assert interval.value == pytest.approx(sum(s for s, _ in clusters) / sum(n for _, n in clusters))


def test_clusters_that_agree_within_themselves_widen_the_interval() -> None:
    alike, mixed = clustered_wilson([(8, 8), (0, 8)] * 10), clustered_wilson([(4, 8)] * 20)
    assert alike.high - alike.low > 2 * (mixed.high - mixed.low)


def test_clustered_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """60 chains of 8 plays, chain difficulties from a U shape: naive Wilson covers far less than 95 %."""
    rng = random.Random(7)
    ours = naive = 0
    for _ in range(400):
        clusters = []
        for _ in range(60):
            p = rng.betavariate(0.5, 0.5)
            clusters.append((sum(rng.random() < p for _ in range(8)), 8))
        interval, plain = clustered_wilson(clusters), wilson(sum(s for s, _ in clusters), 480)
        ours += interval.low <= 0.5 <= interval.high
        naive += plain.low <= 0.5 <= plain.high
    assert ours >= 0.92 * 400
    assert naive < 0.80 * 400


def test_a_rate_needs_trials() -> None:
    for bad in ((0, 0), (3, 2), (-1, 4)):
        with pytest.raises(ValueError, match="successes"):
            wilson(*bad)
    with pytest.raises(ValueError, match="no cluster has a trial"):
        clustered_wilson([(0, 0)])


@pytest.mark.parametrize(("degrees", "quantile"), [(1, 12.7062), (2, 4.3027), (5, 2.5706), (10, 2.2281), (120, 1.9799)])
def test_student_quantiles_agree_with_the_tables(degrees: int, quantile: float) -> None:
    assert student_t_quantile(degrees) == pytest.approx(quantile, abs=5e-5)


def test_paired_difference_uses_only_units_measured_twice() -> None:
    interval = paired_difference({"a": 0.0, "b": 0.5, "c": 1.0}, {"a": 0.5, "b": 1.0, "d": 0.0})
    assert interval.value == pytest.approx(0.5)
    assert interval.low == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no unit"):
        paired_difference({"a": 1.0}, {"b": 1.0})


def test_pairing_removes_what_units_differ_in() -> None:
    before = {str(i): (i % 10) / 10 for i in range(40)}
    after = {k: v + 0.1 + 0.01 * (int(k) % 2) for k, v in before.items()}
    interval = paired_difference(before, after)
    assert interval.high - interval.low < 0.01
    assert math.isinf(mean_interval([1.0]).high)


@given(counts, st.data())
def test_pass_at_k_and_pass_hat_k_bracket_the_success_rate(pair: tuple[int, int], data: st.DataObject) -> None:
    successes, trials = pair
    k = data.draw(st.integers(1, trials))
    rate = successes / trials
    assert -1e-9 <= pass_hat_k(successes, trials, k) <= rate + 1e-9
    assert rate - 1e-9 <= pass_at_k(successes, trials, k) <= 1 + 1e-9
    assert pass_at_k(successes, trials, 1) == pytest.approx(rate)
    assert pass_hat_k(successes, trials, 1) == pytest.approx(rate)


def test_pass_rates_of_a_small_case_by_counting() -> None:
    assert pass_at_k(2, 4, 2) == pytest.approx(5 / 6)
    assert pass_hat_k(2, 4, 2) == pytest.approx(1 / 6)
    with pytest.raises(ValueError, match="k=5"):
        pass_at_k(2, 4, 5)


def test_paired_difference_covers_the_truth_about_as_often_as_it_says() -> None:
    """128 instances, two plays of each before and after; an instance's chances before and after depend on each other."""
    rng = random.Random(11)
    covered = 0
    for _ in range(400):
        before, after = {}, {}
        for unit in map(str, range(128)):
            p = rng.betavariate(0.7, 1.3)  # mean 0.35
            q = p + (1 - p) * 0.4  # mean 0.61
            before[unit] = sum(rng.random() < p for _ in range(2)) / 2
            after[unit] = sum(rng.random() < q for _ in range(2)) / 2
        interval = paired_difference(before, after)
        covered += interval.low <= 0.26 <= interval.high
    assert 0.92 * 400 <= covered <= 0.98 * 400
