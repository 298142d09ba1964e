"""Several runs on one page: curves over each other, and the tables of :mod:`..compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spade_agentic.hooks.records import Arm

from ..compare import PAIRED_HEADS, Comparison, compare_runs, config_rows, overview_rows, paired_rows
from ..files import replace_file
from .facts import Facts, interval_of, read_facts
from .model import Cell, Figure, Lines, Point, Section, Series, Table
from .page import render
from .success import by_step, regret_points

__all__ = ["comparison_page", "write_comparison"]


def write_comparison(run_dirs: Sequence[Path], path: Path) -> Path:
    """Write the comparison of ``run_dirs`` to ``path``, whole or not at all, and return it.

    Raises :class:`~spade_agentic.errors.RunDirError` for fewer than two runs and where one is none, and ``OSError`` where the
    file cannot be written.
    """
    replace_file(path, comparison_page(run_dirs).encode(), durable=False)
    return path


def comparison_page(run_dirs: Sequence[Path]) -> str:
    """The comparison as HTML; raises as :func:`write_comparison` does."""
    comparison = compare_runs(run_dirs)
    facts = {item.label: read_facts(Path(item.run.run_dir)) for item in comparison.runs}
    sections = [_overview(comparison), _curves(facts), _paired(comparison), _config(comparison)]
    return render("compare.html.jinja", sections, [], labels=[item.label for item in comparison.runs])


def _overview(comparison: Comparison) -> Section:
    lead = "Success is held out, with 95 % intervals; regret has its standard error."
    section = Section("overview", "What they reached", lead)
    heads = ("", *(item.label for item in comparison.runs))
    section.tables.append(Table("Runs", heads, _cells(overview_rows(comparison))))
    return section


def _curves(facts: dict[str, Facts]) -> Section:
    section = Section(
        "curves", "Curves",
        "Held-out success and the win rate in training have 95 % bands, regret one standard error. Win rates in training are "
        "of each run's own environments and cannot be compared as they stand.",
    )
    for rate in _rates(facts):
        series = tuple(s for label, run in facts.items() if (s := _heldout(label, run, rate)).points)
        chart = Lines("step", "success", series, y_range=(0.0, 1.0), percent=True)
        section.figures.append(Figure(f"Held out: {rate}", "Success at each step that was measured.", chart))
    regrets = tuple(Series(label, regret_points(run)) for label, run in facts.items() if run.regrets)
    if regrets:
        caption = "Mean over the environments of a round, of each the first measurement."
        section.figures.append(Figure("Regret by round", caption, Lines("round", "regret", regrets, zero=True)))
    plain = tuple(Series(label, points) for label, run in facts.items() if (points := by_step(run, Arm.PLAIN).points))
    if plain:
        chart = Lines("step", "win rate", plain, y_range=(0.0, 1.0), percent=True)
        section.figures.append(Figure("Win rate in training, plain", "Plays that were trained on.", chart))
    return section


def _rates(facts: dict[str, Facts]) -> list[str]:
    """Rates with an interval that any run has, as ``evaluator/rate``, in the order they are first met."""
    found = (key for run in facts.values() for row in run.evaluations for key in row.result if interval_of(row.result, key))
    return list(dict.fromkeys(found))


def _heldout(label: str, run: Facts, rate: str) -> Series:
    known = [(row.step, interval) for row in run.evaluations if (interval := interval_of(row.result, rate))]
    return Series(label, tuple(Point(step, rate.value, rate.low, rate.high) for step, rate in known))


def _paired(comparison: Comparison) -> Section:
    section = Section(
        "paired", "Paired differences",
        f"Each run minus {comparison.runs[0].label}, over the instances that both measured, instance by instance, with 95 % "
        "intervals. These are about the instances: that another seed would train another agent is not in them.",
    )
    if comparison.paired:
        section.tables.append(Table("Differences", PAIRED_HEADS, _cells(paired_rows(comparison))))
    else:
        section.notes.append("The runs measured no instance in common.")
    return section


def _config(comparison: Comparison) -> Section:
    section = Section("config", "Configuration that differs", "Keys whose values are not the same in all runs.")
    if comparison.config:
        heads = ("key", *(item.label for item in comparison.runs))
        section.tables.append(Table("Keys", heads, _cells(config_rows(comparison))))
    else:
        section.notes.append("All keys are the same.")
    return section


def _cells(rows: Sequence[tuple[str, ...]]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(rows)
