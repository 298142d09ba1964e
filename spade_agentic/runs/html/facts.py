"""Everything that the sections of a report are made from, read from the store once and at one moment."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from spade_agentic.evals.stats import Interval, clustered_wilson
from spade_agentic.hooks.records import Arm, Draft, Environment, Regret

from ..reader import EnvironmentPlays, EvaluationRow, MetricsRow, StoreReader
from ..summary import RunSummary, show_run

__all__ = [
    "NOT_SAID", "Facts", "by_round", "domain_of", "goals_of", "interval_of", "mean_and_stderr", "modifiers_of", "most_used",
    "read_facts", "win_rate",
]

NOT_SAID = "(not said)"
"""The domain of a program whose designer names none."""


@dataclass(frozen=True)
class Facts:
    """One run. ``regrets`` has the first measurement of every environment: later ones are of an agent that trained on it."""

    summary: RunSummary
    meta: dict[str, Any]
    metrics: list[MetricsRow]
    evaluations: list[EvaluationRow]
    drafts: list[Draft]
    environments: dict[str, Environment]
    plays: list[EnvironmentPlays]
    regrets: dict[str, Regret]
    round_starts: list[tuple[int, int]]
    """``(step, round)`` of the step that committed each round, in order."""

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.meta["config"]
        return config

    @cached_property
    def rounds(self) -> list[int]:
        return [index for _, index in self.round_starts]

    def round_at(self, step: int) -> int | None:
        """The round that was played in ``step``; ``None`` before the first."""
        return next((index for start, index in reversed(self.round_starts) if start <= step), None)


def read_facts(run_dir: Path) -> Facts:
    """Raises :class:`~spade_agentic.errors.RunDirError` where there is no run, and StoreError for one that is broken."""
    summary = show_run(run_dir)
    with StoreReader(run_dir) as reader, reader.snapshot():
        regrets: dict[str, Regret] = {}
        for row in reader.regrets():
            regrets.setdefault(row.env_id, row.regret)
        drafts = list(reader.drafts())
        starts: dict[int, int] = {}
        for item in drafts:
            starts.setdefault(item.draft.round_index, item.step)
        return Facts(
            summary=summary, meta=reader.meta(), metrics=reader.metrics(), evaluations=reader.evaluations(),
            drafts=[item.draft for item in drafts],
            environments={row.environment.env_id: row.environment for row in reader.environments()},
            plays=reader.plays_by_environment(), regrets=regrets,
            round_starts=sorted((step, index) for index, step in starts.items()),
        )


def domain_of(origin: Any) -> str:
    """The domain that a program says it is of (``Program.origin``)."""
    return str(origin.get("domain") or NOT_SAID)


def most_used(names: Iterable[str], most: int) -> tuple[list[str], int]:
    """The ``most`` most frequent of ``names``, sorted, and how many others there are: designers name things as they like."""
    counts = Counter(names)
    kept = sorted(counts, key=lambda name: (-counts[name], name))[:most]
    return sorted(kept), len(counts) - len(kept)


def goals_of(origin: Any) -> list[str] | None:
    """The goals that a program says it has; ``None`` where its designer has no such notion."""
    goals = origin.get("goals")
    return [str(goal) for goal in goals] if isinstance(goals, list | tuple) else None


def modifiers_of(origin: Any) -> list[str] | None:
    """The names of the modifiers that a program says it has; ``None`` where its designer has no such notion."""
    mods = origin.get("mods")
    return [str(name) for name, value in mods.items() if value] if isinstance(mods, dict) else None


def win_rate(cells: Iterable[EnvironmentPlays]) -> Interval | None:
    """Success over the plays that count, with environments as the sample; ``None`` without any."""
    clusters: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for cell in cells:
        wins, plays = clusters[cell.env_id]
        clusters[cell.env_id] = (wins + cell.wins, plays + cell.plays - cell.void)
    alive = {env: counts for env, counts in clusters.items() if counts[1] > 0}
    return clustered_wilson(alive) if alive else None


def by_round(
    facts: Facts, arm: Arm, keep: Callable[[Environment], bool] = lambda environment: True
) -> list[tuple[int, Interval]]:
    """Win rate of each round's plays of ``arm`` in the environments that ``keep`` names."""
    grouped: dict[int, list[EnvironmentPlays]] = defaultdict(list)
    for cell in facts.plays:
        index = facts.round_at(cell.step)
        if cell.arm is arm and index is not None and keep(facts.environments[cell.env_id]):
            grouped[index].append(cell)
    rates = [(index, win_rate(cells)) for index, cells in sorted(grouped.items())]
    return [(index, rate) for index, rate in rates if rate is not None]


def mean_and_stderr(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error of the mean; one value alone has no error."""
    count, mean = len(values), math.fsum(values) / len(values)
    if count == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)


def interval_of(result: dict[str, Any], key: str) -> Interval | None:
    """The rate ``key`` of an evaluation where it comes with an interval."""
    ends = (result.get(key), result.get(f"{key}_low"), result.get(f"{key}_high"))
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        return None
    value, low, high = (float(end) for end in ends if end is not None)
    return Interval(value, low, high)
