"""Intervals and rates for evaluations. Pure functions on plain numbers, standard library alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Interval", "clustered_wilson", "paired_difference", "pass_at_k", "pass_hat_k", "student_t_quantile", "wilson"]

Z95 = 1.959963984540054
"""The standard normal's 97.5 % point: two-sided 95 % intervals."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its two-sided 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def wilson(successes: float, trials: float, *, z: float = Z95) -> Interval:
    """Wilson's score interval (E. B. Wilson, 1927) of a proportion; unlike the normal one it never leaves [0, 1].

    ``successes`` and ``trials`` may be fractional (an effective sample size). Raises ``ValueError`` without trials.
    """
    if trials <= 0 or not 0 <= successes <= trials:
        raise ValueError(f"a proportion needs 0 <= successes <= trials and trials > 0, not {successes} of {trials}")
    p = successes / trials
    z2 = z * z / trials
    centre = (p + z2 / 2) / (1 + z2)
    half = z / (1 + z2) * math.sqrt(p * (1 - p) / trials + z2 / (4 * trials))
    # At 0 and 1 the exact bound is the estimate itself; rounding must not push the bound past it.
    return Interval(p, min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half)))


def clustered_wilson(clusters: Mapping[str, tuple[int, int]] | Sequence[tuple[int, int]], *, z: float = Z95) -> Interval:
    """Wilson's interval on the effective sample size of clustered trials.

    ``clusters`` holds ``(successes, trials)`` per cluster, such as all plays of one goal chain: they resemble each other, so
    that counting every play as a trial of its own gives intervals that are too narrow. The design effect is the
    cluster-robust variance of the ratio estimator over the binomial variance, taken as at least 1 (Kish, 1965; the
    effective size goes into Wilson's interval as in Dean and Pagano, 2015). Where all trials agree, or where there is one
    cluster, that variance says nothing, and each cluster counts as one trial.
    """
    pairs = [c for c in (clusters.values() if isinstance(clusters, Mapping) else clusters) if c[1] > 0]
    trials = sum(n for _, n in pairs)
    successes = sum(s for s, _ in pairs)
    if not pairs:
        raise ValueError("no cluster has a trial")
    p = successes / trials
    k = len(pairs)
    binomial = p * (1 - p) / trials
    if binomial == 0.0 or k == 1:
        return wilson(p * k, k, z=z)
    robust = k / (k - 1) * sum((s - n * p) ** 2 for s, n in pairs) / trials**2
    effective = trials / max(1.0, robust / binomial)
    return wilson(p * effective, effective, z=z)


def paired_difference(before: Mapping[str, float], after: Mapping[str, float]) -> Interval:
    """Mean of ``after - before`` over the keys that both have, with Student's t interval over the keys.

    Each key is one unit (a chain, a seed) with its mean in both conditions. With one common key the interval is infinite.
    Raises ``ValueError`` without a common key.
    """
    keys = sorted(before.keys() & after.keys())
    if not keys:
        raise ValueError("no unit was measured in both conditions")
    return mean_interval([after[k] - before[k] for k in keys])


def mean_interval(values: Iterable[float]) -> Interval:
    """Mean with Student's t 95 % interval; infinite for a single value."""
    xs = list(values)
    n = len(xs)
    mean = math.fsum(xs) / n
    if n == 1:
        return Interval(mean, -math.inf, math.inf)
    stderr = math.sqrt(math.fsum((x - mean) ** 2 for x in xs) / (n - 1) / n)
    half = student_t_quantile(n - 1) * stderr
    return Interval(mean, mean - half, mean + half)


def student_t_quantile(degrees: int) -> float:
    """The 97.5 % point of Student's t with ``degrees`` >= 1 degrees of freedom, to 1e-9, by bisection on its exact CDF."""
    assert degrees >= 1
    low, high = 1.0, 16.0
    while _t_cdf(high, degrees) < 0.975:
        high *= 2
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (middle, high) if _t_cdf(middle, degrees) < 0.975 else (low, middle)
    return high


def _t_cdf(t: float, degrees: int) -> float:
    """CDF of Student's t for integer degrees: the finite trigonometric series (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    theta = math.atan2(t, math.sqrt(degrees))
    cos2 = math.cos(theta) ** 2
    odd = degrees % 2 == 1
    if degrees == 1:
        within = 2 * theta / math.pi
    else:
        term = math.cos(theta) if odd else 1.0
        total = term
        for i in range(1, (degrees - 1) // 2 if odd else degrees // 2):
            term *= cos2 * ((2 * i) / (2 * i + 1) if odd else (2 * i - 1) / (2 * i))
            total += term
        within = 2 / math.pi * (theta + math.sin(theta) * total) if odd else math.sin(theta) * total
    return 0.5 + within / 2


def pass_at_k(successes: int, trials: int, k: int) -> float:
    """Chance that at least one of ``k`` trials wins: the unbiased estimate from ``trials`` >= k (Chen et al., 2021)."""
    _check_k(successes, trials, k)
    return 1.0 - math.comb(trials - successes, k) / math.comb(trials, k)


def pass_hat_k(successes: int, trials: int, k: int) -> float:
    """pass^k: chance that all of ``k`` trials win, unbiased from ``trials`` >= k (tau-bench; Yao et al., 2024)."""
    _check_k(successes, trials, k)
    return math.comb(successes, k) / math.comb(trials, k)


def _check_k(successes: int, trials: int, k: int) -> None:
    if not (0 <= successes <= trials and 1 <= k <= trials):
        raise ValueError(f"need 0 <= successes <= trials and 1 <= k <= trials, not {successes} of {trials} with k={k}")
