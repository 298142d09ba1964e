"""How well the agent does: held out and in training, over all and by skill and domain; and what hints are worth to it."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from spade_agentic.evals.heldout import RATES, RESERVED, gain
from spade_agentic.evals.stats import Interval
from spade_agentic.hooks.records import Arm, Environment, Regret

from ..reader import EvaluationRow
from ..report import points_text
from .axes import nice_ticks
from .facts import Facts, by_round, domain_of, interval_of, mean_and_stderr, most_used, win_rate
from .model import Cell, Dots, Figure, Lines, Point, Section, Series, Table

__all__ = ["by_step", "heldout_section", "regret_points", "regret_section", "reserved_section", "training_section"]

Of = Callable[[Environment], str]
BY: tuple[tuple[str, Of], ...] = (
    ("skill", lambda environment: environment.program.skill.value),
    ("domain", lambda environment: domain_of(environment.program.origin)),
)
MOST_PARTS = 12
"""Skills or domains that get a chart of their own."""


def heldout_section(facts: Facts) -> Section:
    """Every rate that an evaluator answered with an interval, over steps; and its parts, which come without."""
    section = Section(
        "heldout", "Held-out success",
        "Instances that neither training nor the warm start has drawn. Bands and brackets are 95 % intervals with instances as "
        "the sample; the change is paired, instance by instance.",
    )
    by_name = _by_name(facts)
    for name, rows in by_name.items():
        _one_evaluator(section, name, rows, [rate for rate in _rates(rows) if not _is_reserved(rate, name)])
    if not by_name:
        section.missing("Held-out success")
    return section


def reserved_section(facts: Facts) -> Section | None:
    """The same of the domains that are reserved for evaluation; ``None`` where no evaluator measured them."""
    section = Section(
        "reserved", "Success in reserved domains",
        "Domains in which neither a run nor the warm start may train. They are measured apart, and are in no other figure of "
        "this page. Bands, brackets and the change are as for held-out success.",
    )
    for name, rows in _by_name(facts).items():
        rates = [rate for rate in _rates(rows) if _is_reserved(rate, name)]
        if rates:
            _one_evaluator(section, name, rows, rates)
    return section if section.tables else None


def _by_name(facts: Facts) -> dict[str, list[EvaluationRow]]:
    by_name: dict[str, list[EvaluationRow]] = defaultdict(list)
    for row in facts.evaluations:
        by_name[row.name].append(row)
    return by_name


def _rates(rows: list[EvaluationRow]) -> list[str]:
    """Every rate that comes with an interval."""
    return sorted({k for row in rows for k in row.result if interval_of(row.result, k)}, key=_rate_order)


def _is_reserved(key: str, name: str) -> bool:
    return key.startswith(f"{name}/{RESERVED}/")


def _one_evaluator(section: Section, name: str, rows: list[EvaluationRow], rates: list[str]) -> None:
    groups: dict[str, list[Series]] = defaultdict(list)
    for rate in rates:
        groups[rate.rpartition("/")[0]].append(
            Series(
                _short(rate, rate.rpartition("/")[0]),
                tuple(_point(row.step, i) for row in rows if (i := interval_of(row.result, rate))),
            )
        )
    for group, series in groups.items():
        section.figures.append(
            Figure(
                f"Success: {group}", f"Success of {', '.join(s.name for s in series)} at each step that was measured.",
                Lines("step", "success", tuple(series), y_range=(0.0, 1.0), percent=True),
            )
        )
    section.tables.append(_before_after(name, rows, rates))
    parts = sorted({k for row in rows for k in row.result if _is_part(k, rates)})
    if parts:
        first, last = rows[0], rows[-1]
        section.tables.append(
            Table(
                f"{name} by part (no interval is recorded for these)", ("part", f"step {first.step}", f"step {last.step}"),
                tuple((_short(k, name), first.result.get(k), last.result.get(k)) for k in parts), shares=True,
            )
        )


def _rate_order(key: str) -> tuple[str, int, str]:
    """Rates that belong together stand together, and the ones that matter first."""
    group, _, rate = key.rpartition("/")
    return group, RATES.index(rate) if rate in RATES else len(RATES), rate


def _is_part(key: str, rates: Iterable[str]) -> bool:
    return any(key.startswith(f"{rate}/") for rate in rates)


def _before_after(name: str, rows: list[EvaluationRow], rates: list[str]) -> Table:
    body: list[tuple[Cell, ...]] = []
    for rate in rates:
        known = [(row, interval) for row in rows if (interval := interval_of(row.result, rate))]
        (first, before), (last, after) = known[0], known[-1]
        change = None if first is last else _gain(first.result, last.result, _short(rate, name))
        body.append((
            _short(rate, name), f"{before} (step {first.step})", None if first is last else f"{after} (step {last.step})",
            None if change is None else points_text(change),
        ))  # fmt: skip
    return Table(f"{name}: first and last", ("plays", "first", "last", "change"), tuple(body))


def _gain(first: dict[str, Any], last: dict[str, Any], rate: str) -> Interval | None:
    instances = (first.get(f"instances/{rate}"), last.get(f"instances/{rate}"))
    return gain(*instances) if all(isinstance(i, dict) for i in instances) else None  # type: ignore[arg-type]


def _short(key: str, prefix: str) -> str:
    return key.removeprefix(f"{prefix}/") if prefix else key


def _point(x: float, interval: Interval) -> Point:
    finite = math.isfinite(interval.low) and math.isfinite(interval.high)
    return Point(x, interval.value, interval.low if finite else None, interval.high if finite else None)


# --- training --------------------------------------------------------------------------------------------------------------


def training_section(facts: Facts) -> Section:
    """Win rate of the plays that were made for training, both arms, over steps and by skill and domain over rounds."""
    section = Section(
        "training", "Win rate in training",
        "Not a learning curve: the environments change with every round, and the designer follows the agent. The distance of "
        "the two arms is what matters. Bands are 95 % intervals with environments as the sample.",
    )
    series = tuple(s for arm in Arm if (s := by_step(facts, arm)).points)
    if not series:
        section.missing("Plays")
        return section
    section.figures.append(
        Figure(
            "Win rate by step", "Plain plays are trained on; hinted plays only measure.",
            Lines("step", "win rate", series, y_range=(0.0, 1.0), percent=True),
        )
    )
    for what, of in BY:
        for name in _parts(section, what, map(of, facts.environments.values())):
            curves = tuple(s for arm in Arm if (s := _by_round(facts, arm, of, name)).points)
            if curves:
                chart = Lines("round", "win rate", curves, x_range=_rounds(facts), y_range=(0.0, 1.0), percent=True)
                section.figures.append(Figure(f"{what} {name}", f"Win rate by round in the {what} {name}.", chart, small=True))
    return section


def _parts(section: Section, what: str, names: Iterable[str]) -> list[str]:
    kept, others = most_used(names, MOST_PARTS)
    if others:
        section.notes.append(f"Of the {what}s, the {MOST_PARTS} with the most environments are shown; there are {others} more.")
    return kept


def by_step(facts: Facts, arm: Arm) -> Series:
    """Win rate of the plays of ``arm`` in each step, with its interval."""
    cells = [cell for cell in facts.plays if cell.arm is arm]  # in the order of their steps
    rates = [(step, win_rate(group)) for step, group in itertools.groupby(cells, key=lambda cell: cell.step)]
    return Series(arm.value, tuple(_point(step, rate) for step, rate in rates if rate is not None))


def _by_round(facts: Facts, arm: Arm, of: Of, name: str) -> Series:
    rates = by_round(facts, arm, lambda environment: of(environment) == name)
    return Series(arm.value, tuple(_point(index, rate) for index, rate in rates))


# --- regret ----------------------------------------------------------------------------------------------------------------


def regret_section(facts: Facts) -> Section:
    """Hint-regret by the round that made the environments."""
    section = Section(
        "regret", "Hint-regret",
        "Mean return with the hint minus mean return without it, on the same instances. Of every environment the first "
        "measurement counts, in the round that made it. Bands are one standard error of the mean over environments.",
    )
    if not facts.regrets:
        section.missing("Regret")
        return section
    items = sorted(facts.regrets.items(), key=lambda item: facts.environments[item[0]].round_index)
    dots = Dots(
        "environments", tuple(Point(facts.environments[env].round_index, regret.mean) for env, regret in items),
        tuple(_label(facts.environments[env]) for env, _ in items),
    )  # fmt: skip
    mean = Series("mean", regret_points(facts))
    section.figures.append(
        Figure(
            "Regret by round", "Above 0 hints help: there is something to learn. Each dot is one environment.",
            Lines("round", "regret", (mean,), dots=(dots,), zero=True),
        )
    )
    arms = (
        Series("hinted", _means(facts, lambda regret: regret.hinted_mean)),
        Series("plain", _means(facts, lambda regret: regret.plain_mean)),
    )
    section.figures.append(
        Figure(
            "The two means that regret is the difference of", "Mean return of each arm, over the environments of a round.",
            Lines("round", "return", arms),
        )
    )
    parts = [
        (what, _regret_series(facts, name, lambda environment, of=of, name=name: of(environment) == name))  # type: ignore[misc]
        for what, of in BY for name in _parts(section, what, (of(facts.environments[env]) for env in facts.regrets))
    ]  # fmt: skip
    y_range = _common_range(curve for _, curve in parts)
    for what, curve in parts:
        chart = Lines("round", "regret", (curve,), x_range=_rounds(facts), y_range=y_range, zero=True)
        caption = f"Regret by round in the {what} {curve.name}."
        section.figures.append(Figure(f"{what} {curve.name}", caption, chart, small=True))
    return section


def _rounds(facts: Facts) -> tuple[float, float]:
    return float(min(facts.rounds)), float(max(facts.rounds))


def _common_range(curves: Iterable[Series]) -> tuple[float, float]:
    """One vertical axis for charts that stand beside each other."""
    values = [v for curve in curves for p in curve.points for v in (p.y, p.low, p.high) if v is not None]
    ticks = nice_ticks(min(0.0, *values), max(0.0, *values))
    return ticks[0], ticks[-1]


def _label(environment: Environment) -> str:
    return f"{environment.env_id}, {domain_of(environment.program.origin)}, {environment.program.skill.value}"


def _regret_series(facts: Facts, name: str, keep: Callable[[Environment], bool]) -> Series:
    return Series(name, _means(facts, lambda regret: regret.mean, keep))


def regret_points(facts: Facts) -> tuple[Point, ...]:
    """Mean regret by round, over all its environments."""
    return _means(facts, lambda regret: regret.mean)


def _means(
    facts: Facts, value: Callable[[Regret], float], keep: Callable[[Environment], bool] = lambda environment: True
) -> tuple[Point, ...]:
    """By round, the mean over its environments, give or take its standard error; of a single one there is no error to say."""
    grouped: dict[int, list[float]] = defaultdict(list)
    for env, regret in facts.regrets.items():
        if keep(facts.environments[env]):
            grouped[facts.environments[env].round_index].append(value(regret))
    points = []
    for index, values in sorted(grouped.items()):
        mean, stderr = mean_and_stderr(values)
        points.append(Point(index, mean, *((None, None) if stderr is None else (mean - stderr, mean + stderr))))
    return tuple(points)
