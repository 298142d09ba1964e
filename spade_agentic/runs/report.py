"""A run as text: the table at the end of a run, and of ``runs report``."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spade_agentic.evals.heldout import RATES, RESERVED_RATES, gain
from spade_agentic.evals.stats import Interval

from .live import duration
from .reader import EvaluationRow, StoreReader
from .summary import RunSummary, show_run

__all__ = ["audit_line", "gains", "points_text", "report_data", "report_run", "table", "with_interval"]


def report_data(run_dir: Path) -> dict[str, Any]:
    """What :func:`report_run` prints, as JSON-able data: ``run`` (the summary) and ``gain`` (after minus before by rate).

    Raises :class:`~spade_agentic.errors.RunDirError` where there is no run.
    """
    summary = show_run(run_dir)
    changes = {rate: dataclasses.asdict(change) for rate, change in _measured_gains(run_dir).items()}
    return {"run": dataclasses.asdict(summary), "gain": changes}


def report_run(run_dir: Path) -> str:
    """Success before and after with 95 % intervals, that in reserved domains apart, regret, rounds, drafts by outcome, time
    and paths, as plain text.

    Raises :class:`~spade_agentic.errors.RunDirError` where there is no run.
    """
    summary, changes = show_run(run_dir), _measured_gains(run_dir)
    sections = [
        _head(summary), _success(summary, changes), _reserved(summary, changes),
        *(part(summary) for part in (_course, _audit, _refusals, _paths)),
    ]  # fmt: skip
    return "\n\n".join(section for section in sections if section) + "\n"


def _head(run: RunSummary) -> str:
    return (
        f"{run.run_id}: {run.status}, {run.steps} of {run.steps_planned} steps in {duration(run.wall_s)}, "
        f"seed {run.seed}, begun {run.created_at}"
    )


def _success(run: RunSummary, changes: dict[str, Interval]) -> str:
    rows = _rate_rows(run, changes, RATES)
    return table("Held-out success (95 % intervals)", _HEADS, rows) if rows else "Held-out success: not measured"


def _reserved(run: RunSummary, changes: dict[str, Interval]) -> str:
    """Nothing where it was not measured, as in a run that was made before it could be."""
    rows = _rate_rows(run, changes, RESERVED_RATES)
    return table("Success in reserved domains (95 % intervals; in no figure above)", _HEADS, rows) if rows else ""


_HEADS = ("plays", "before", "after", "change")


def _rate_rows(run: RunSummary, changes: dict[str, Interval], rates: Sequence[str]) -> list[tuple[str, ...]]:
    """The rates that were measured: their arm, before, after, and the paired change."""
    measured = [(rate, run.evaluation[rate]) for rate in rates if rate in run.evaluation]
    return [
        (
            rate.rpartition("/")[2], with_interval(pair["before"]), with_interval(pair["after"]),
            points_text(changes.get(rate)),
        )
        for rate, pair in measured
    ]  # fmt: skip


def with_interval(rate: dict[str, float] | None) -> str:
    """A rate of :attr:`RunSummary.evaluation` as text; a dash where it was not measured."""
    if rate is None:
        return "-"
    interval = f" [{rate['low']:.3f}, {rate['high']:.3f}]" if "low" in rate and "high" in rate else ""
    return f"{rate['value']:.3f}{interval}"


def _measured_gains(run_dir: Path) -> dict[str, Interval]:
    with StoreReader(run_dir) as reader:
        name = reader.meta()["config"].get("evaluation", {}).get("name", "heldout")
        return gains(reader.evaluations(name))


def gains(evaluations: Sequence[EvaluationRow]) -> dict[str, Interval]:
    """After minus before for each rate, paired over the instances that both measured."""
    found = {}
    for rate in (*RATES, *RESERVED_RATES):
        measured = [row for row in evaluations if row.result.get(f"instances/{rate}")]
        if len(measured) >= 2 and measured[0].step == 0:
            first, last = (row.result[f"instances/{rate}"] for row in (measured[0], measured[-1]))
            difference = gain(first, last)
            if difference is not None:
                found[rate] = difference
    return found


def _course(run: RunSummary) -> str:
    rows = []
    for when in ("first", "last"):
        regret = run.regret[when]
        text = "-" if regret is None else (
            f"{regret['mean']:+.3f} ± {regret['stderr']:.3f} (round {regret['round']}, {regret['environments']} environments)"
        )
        rows.append((f"mean regret, {when} round", text))
    rows += [
        ("rounds", str(run.rounds)),
        ("drafts", f"{run.drafts}: {run.admitted} admitted, {sum(run.refused.values())} refused"),
        ("plays", f"{run.plays:,} consumed, {run.plays_void:,} void, {run.sampled_tokens:,} sampled tokens"),
        ("wall time", duration(run.wall_s)),
    ]
    return table("Course", ("", ""), rows)


def _audit(run: RunSummary) -> str:
    if not run.breaches:
        return audit_line(run)
    return table(audit_line(run), ("check", "steps"), [(check, str(count)) for check, count in run.breaches.items()])


def audit_line(run: RunSummary) -> str:
    """Whether the training signal held, in one line; which checks did not is in ``run.breaches``."""
    if not run.steps_audited:
        return "Audit of the training signal: no step audited"
    held = ", ".join(run.breaches) if run.breaches else "none"
    return f"Audit of the training signal: {run.steps_audited} steps, breaches: {held}"


def _refusals(run: RunSummary) -> str:
    return table("Refused drafts", ("reason", "drafts"), [(r, str(n)) for r, n in run.refused.items()]) if run.refused else ""


def _paths(run: RunSummary) -> str:
    rows = [("weights", run.checkpoint)] if run.checkpoint else []
    return table("Paths", ("", ""), [*rows, *run.paths.items()])


def points_text(change: Interval | None) -> str:
    """A difference of rates in percentage points, with its interval where it has one; a dash where it is not known."""
    if change is None:
        return "-"
    ends = f" [{change.low * 100:+.1f}, {change.high * 100:+.1f}]" if math.isfinite(change.low) else ""
    return f"{change.value * 100:+.1f} points{ends}"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as plain text, as wide as it needs to be; without heads where ``columns`` are empty."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    headed = any(columns)
    table = Table(box=SIMPLE_HEAD if headed else None, show_header=headed, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    stream = io.StringIO()
    # Wide enough that no path is broken: this text is read by people and copied from.
    Console(file=stream, width=max(240, 48 * len(columns)), highlight=False, color_system=None).print(table)
    body = "\n".join(line.rstrip() for line in stream.getvalue().splitlines() if line.strip())
    return f"{title}\n{body}"
