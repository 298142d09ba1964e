"""The table: what each config reached over its seeds, with 95 % intervals, as data, as text and as Markdown.

With two finished seeds or more the seeds are what was sampled: a mean over seeds and Student's t. With one, the interval is
over what its evaluation sampled (instances) or its pool (environments), and says nothing about another seed. Every estimate
says which it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spade_agentic.evals.heldout import RATES, RESERVED_RATES, gain
from spade_agentic.evals.stats import Interval, mean_interval, student_t_quantile
from spade_agentic.runs.files import replace_file
from spade_agentic.runs.reader import EvaluationRow, StoreReader
from spade_agentic.runs.report import gains, table
from spade_agentic.runs.summary import RunSummary, show_run

from .cells import REFERENCE, Cell

__all__ = ["Estimate", "Row", "Table", "make_table", "table_markdown", "table_text", "write_table"]

DASH = "-"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval, over ``count`` of ``unit``: ``seeds``, ``instances`` or ``environments``."""

    value: float
    low: float
    high: float
    count: int
    unit: str


@dataclass(frozen=True, slots=True)
class Row:
    """One config over its finished ``seeds``.

    ``success[rate]`` has ``before``, ``after``, ``gain`` (after minus before, paired) and ``against`` (after minus that of the
    reference, paired over seeds that both finished, else over instances); ``regret`` the mean unfloored regret of the pool in
    the ``first`` and the ``last`` interval. ``None`` where it was not measured. Plays, drafts and minutes are means of a run.
    """

    name: str
    seeds: list[int]
    unfinished: list[int]
    success: dict[str, dict[str, Estimate | None]]
    regret: dict[str, Estimate | None]
    plays: float | None
    plays_void: float | None
    drafts: float | None
    minutes: float | None


@dataclass(frozen=True, slots=True)
class Table:
    """``rates`` are those that any run measured, in their order; ``cells`` says of every run where it stands."""

    reference: str | None
    rates: list[str]
    rows: list[Row]
    cells: list[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """JSON-able; the end of an interval that is infinite is ``None``."""
        return dict(_finite(asdict(self)))


@dataclass(frozen=True, slots=True)
class _Run:
    """A finished run, read."""

    summary: RunSummary
    evaluations: list[EvaluationRow]
    gain: dict[str, Interval]
    regret: dict[str, Estimate | None]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_table(made: Table, folder: Path) -> None:
    """Write ``table.json`` and ``table.md``, each whole or not at all."""
    replace_file(folder / "table.json", (json.dumps(made.to_json(), indent=2) + "\n").encode())
    replace_file(folder / "table.md", table_markdown(made).encode())


def make_table(cells: Sequence[Cell]) -> Table:
    """Read every cell that there is something of."""
    names = list(dict.fromkeys(cell.name for cell in cells))
    states = {cell.folder: cell.state() for cell in cells}
    finished = {name: {c.seed: _read(c) for c in cells if c.name == name and states[c.folder] == "finished"} for name in names}
    reference = REFERENCE if REFERENCE in names else None
    measured = {rate for runs in finished.values() for run in runs.values() for rate in run.summary.evaluation}
    rates = [rate for rate in (*RATES, *RESERVED_RATES) if rate in measured]
    rows = [
        _row(
            name, finished[name], finished[reference] if reference is not None and name != reference else {}, rates,
            unfinished=[cell.seed for cell in cells if cell.name == name and cell.seed not in finished[name]],
        )
        for name in names
    ]  # fmt: skip
    return Table(reference, rates, rows, [_cell(cell, states[cell.folder]) for cell in cells])


def _cell(cell: Cell, state: str) -> dict[str, Any]:
    run = cell.summary()
    return {
        "name": cell.name, "seed": cell.seed, "state": state, "run_dir": str(cell.folder),
        "steps": 0 if run is None else run.steps, "steps_planned": cell.config.run.steps,
        "status": None if run is None else run.status,
    }


def _read(cell: Cell) -> _Run:
    with StoreReader(cell.folder) as reader, reader.snapshot():
        evaluations = reader.evaluations(cell.config.evaluation.name)
        metrics = [row.metrics for row in reader.metrics() if "regret/mean" in row.metrics]
    regret = {when: _regret(metrics[at]) if metrics else None for when, at in (("first", 0), ("last", -1))}
    return _Run(show_run(cell.folder), evaluations, gains(evaluations), regret)


def _regret(metrics: Mapping[str, float]) -> Estimate:
    """Of one interval, over the environments of its pool."""
    mean, count = metrics["regret/mean"], int(metrics["interval/with_regret"])
    half = student_t_quantile(count - 1) * metrics["regret/stderr"] if count > 1 else math.inf
    return Estimate(mean, mean - half, mean + half, count, "environments")


# --- rows ------------------------------------------------------------------------------------------------------------------


def _row(
    name: str, runs: Mapping[int, _Run], reference: Mapping[int, _Run], rates: Sequence[str], *, unfinished: list[int]
) -> Row:
    listed = list(runs.values())
    summaries = [run.summary for run in listed]
    return Row(
        name, sorted(runs), unfinished,
        success={
            rate: {
                "before": _over_seeds([_reached(run, rate, "before") for run in listed]),
                "after": _over_seeds([_reached(run, rate, "after") for run in listed]),
                "gain": _over_seeds([_gained(run, rate) for run in listed]),
                "against": _against(runs, reference, rate),
            }
            for rate in rates
        },
        regret={when: _over_seeds([run.regret[when] for run in listed]) for when in ("first", "last")},
        plays=_mean([run.plays for run in summaries]), plays_void=_mean([run.plays_void for run in summaries]),
        drafts=_mean([run.drafts for run in summaries]), minutes=_mean([run.wall_s / 60 for run in summaries]),
    )  # fmt: skip


def _over_seeds(each: Sequence[Estimate | None]) -> Estimate | None:
    """Their mean with an interval over them; of a single one, what it is."""
    known = [estimate for estimate in each if estimate is not None]
    if len(known) <= 1:
        return known[0] if known else None
    return _estimate(mean_interval(estimate.value for estimate in known), len(known), "seeds")


def _estimate(interval: Interval, count: int, unit: str) -> Estimate:
    return Estimate(interval.value, interval.low, interval.high, count, unit)


def _reached(run: _Run, rate: str, when: str) -> Estimate | None:
    measured = run.summary.evaluation.get(rate, {}).get(when)
    if measured is None:
        return None
    value = measured["value"]
    instances = _instances(run, rate, when)
    return Estimate(value, measured.get("low", -math.inf), measured.get("high", math.inf), len(instances), "instances")


def _gained(run: _Run, rate: str) -> Estimate | None:
    change = run.gain.get(rate)
    return None if change is None else _estimate(change, len(_instances(run, rate, "after")), "instances")


def _against(runs: Mapping[int, _Run], reference: Mapping[int, _Run], rate: str) -> Estimate | None:
    """After minus the reference's after. With one seed in common, over the instances that both measured with it."""
    seeds = sorted(runs.keys() & reference.keys())
    pairs = [(_reached(runs[seed], rate, "after"), _reached(reference[seed], rate, "after")) for seed in seeds]
    differences = [ours.value - theirs.value for ours, theirs in pairs if ours is not None and theirs is not None]
    if len(differences) > 1:
        return _estimate(mean_interval(differences), len(differences), "seeds")
    if not differences:
        return None
    theirs, ours = (_instances(each[seeds[0]], rate, "after") for each in (reference, runs))
    found = gain(theirs, ours)
    return None if found is None else _estimate(found, len(theirs.keys() & ours.keys()), "instances")


def _instances(run: _Run, rate: str, when: str) -> dict[str, Any]:
    """Wins and plays of every instance, before training or at the newest later step that measured them."""
    known = [row.result[f"instances/{rate}"] for row in run.evaluations
             if row.result.get(f"instances/{rate}") and (row.step == 0) == (when == "before")]  # fmt: skip
    return dict(known[-1]) if known else {}


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


# --- as text ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Section:
    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def table_text(made: Table) -> str:
    """The table for a terminal."""
    parts = [table(section.title, section.heads, section.rows) for section in _sections(made)]
    return "\n\n".join([*parts, *_notes(made)]) + "\n"


def table_markdown(made: Table) -> str:
    """The same in Markdown."""
    parts = []
    for section in _sections(made):
        lines = [section.heads, tuple("---" for _ in section.heads), *section.rows]
        parts.append(f"### {section.title}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines))
    return "\n\n".join([*parts, *_notes(made)]) + "\n"


def _sections(made: Table) -> list[_Section]:
    against = f"after, against {made.reference}"
    heads = ("config", "seeds", "before", "after", "gain", *([against] if made.reference else []))
    found = []
    for rate in made.rates:
        rows = [
            (
                row.name, _seeds(row), _rate(row.success[rate]["before"]), _rate(row.success[rate]["after"]),
                _points(row.success[rate]["gain"]), *([_points(row.success[rate]["against"])] if made.reference else []),
            )
            for row in made.rows
        ]  # fmt: skip
        what = "Reserved domains" if rate in RESERVED_RATES else "Held-out success"
        found.append(_Section(f"{what}, {rate.rpartition('/')[2]} (%, 95 % intervals)", heads, rows))
    course = [
        (
            row.name, _seeds(row), _signed(row.regret["first"]), _signed(row.regret["last"]), _number(row.plays),
            _number(row.plays_void), _number(row.drafts), _number(row.minutes, digits=1),
        )
        for row in made.rows
    ]  # fmt: skip
    heads = ("config", "seeds", "regret, first interval", "regret, last interval", "plays", "void", "drafts", "minutes")
    return [*found, _Section("Course (regret with 95 % intervals; the rest as means of a run)", heads, course)]


def _notes(made: Table) -> list[str]:
    notes = []
    if any(len(row.seeds) == 1 for row in made.rows):
        notes.append(
            "Where one seed is finished, intervals are over held-out instances (of regret: over environments) and say nothing"
            " about another seed; otherwise they are over seeds."
        )
    elif any(row.seeds for row in made.rows):
        notes.append("Intervals are over seeds (Student's t).")
    waiting = [f"{cell['name']} seed {cell['seed']} ({cell['steps']} of {cell['steps_planned']} steps)" for cell in made.cells
               if cell["state"] != "finished"]  # fmt: skip
    if waiting:
        notes.append(f"Not finished: {', '.join(waiting)}.")
    plays = {row.plays for row in made.rows if row.plays is not None}
    if len(plays) > 1:
        notes.append(f"The runs did not consume equally many plays: {min(plays):,.0f} to {max(plays):,.0f}.")
    return notes


def _seeds(row: Row) -> str:
    return ", ".join(map(str, row.seeds)) or DASH


def _rate(estimate: Estimate | None) -> str:
    if estimate is None:
        return DASH
    return f"{estimate.value * 100:.1f}" + _ends(estimate, "{:.1f}", scale=100)


def _points(estimate: Estimate | None) -> str:
    return DASH if estimate is None else f"{estimate.value * 100:+.1f}" + _ends(estimate, "{:+.1f}", scale=100)


def _signed(estimate: Estimate | None) -> str:
    return DASH if estimate is None else f"{estimate.value:+.3f}" + _ends(estimate, "{:+.3f}")


def _ends(estimate: Estimate, form: str, *, scale: float = 1) -> str:
    if not (math.isfinite(estimate.low) and math.isfinite(estimate.high)):
        return ""
    return f" [{form.format(estimate.low * scale)}, {form.format(estimate.high * scale)}]"


def _number(value: float | None, *, digits: int = 0) -> str:
    return DASH if value is None else f"{value:,.{digits}f}"
