"""Runs side by side: what they reached, how they differ where they measured the same, and what was set differently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spade_agentic.errors import RunDirError
from spade_agentic.evals.heldout import RATES, RESERVED_RATES, gain
from spade_agentic.evals.stats import Interval

from .live import duration
from .reader import EvaluationRow, StoreReader
from .report import gains, points_text, table, with_interval
from .summary import RunSummary, show_run

__all__ = ["ComparedRun", "Comparison", "ConfigDifference", "Difference", "compare_runs", "comparison_text"]


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One run. ``label`` is unique among those compared; ``gain`` is after minus before, by rate, paired."""

    label: str
    run: RunSummary
    gain: dict[str, Interval]


@dataclass(frozen=True, slots=True)
class Difference:
    """``run`` minus ``baseline`` in one rate, over the ``instances`` that both measured, paired, with a 95 % interval.

    ``when`` is ``first`` (step 0 of both) or ``last`` (the newest step that each measured after it). With one instance in
    common the interval is infinite.
    """

    baseline: str
    run: str
    evaluator: str
    rate: str
    when: str
    steps: tuple[int, int]
    instances: int
    difference: Interval


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """A key whose values are not the same everywhere; ``values`` by label, ``None`` where the key is missing."""

    key: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several runs; the first one is what the others are compared with."""

    runs: list[ComparedRun]
    paired: list[Difference]
    config: list[ConfigDifference]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare_runs(run_dirs: Sequence[Path]) -> Comparison:
    """Compare two runs or more. Raises :class:`~spade_agentic.errors.RunDirError` for fewer, and where one is no run."""
    if len(run_dirs) < 2:
        raise RunDirError(
            "there is nothing to compare with", where=", ".join(map(str, run_dirs)) or "no run", todo="name two runs or more"
        )
    labels = run_labels(run_dirs)
    runs, evaluations, configs = [], [], []
    for label, run_dir in zip(labels, run_dirs, strict=True):
        with StoreReader(run_dir) as reader, reader.snapshot():
            configs.append(reader.meta()["config"])
            evaluations.append(reader.evaluations())
        name = configs[-1].get("evaluation", {}).get("name", "heldout")
        runs.append(ComparedRun(label, show_run(run_dir), gains([row for row in evaluations[-1] if row.name == name])))
    paired = [
        difference
        for label, rows in zip(labels[1:], evaluations[1:], strict=True)
        for difference in _differences(labels[0], evaluations[0], label, rows)
    ]
    return Comparison(runs, paired, config_differences(dict(zip(labels, configs, strict=True))))


def run_labels(run_dirs: Sequence[Path]) -> list[str]:
    """The folders' names, or their paths where two are called the same. A run that is named twice is numbered."""
    paths = [Path(run_dir).resolve() for run_dir in run_dirs]
    named = Counter(path.name for path in paths)
    labels = [path.name if named[path.name] == 1 else str(path) for path in paths]
    seen: Counter[str] = Counter()
    unique = []
    for label in labels:
        seen[label] += 1
        unique.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return unique


def _differences(baseline: str, ours: list[EvaluationRow], label: str, theirs: list[EvaluationRow]) -> Iterable[Difference]:
    for evaluator in sorted({row.name for row in ours} & {row.name for row in theirs}):
        mine, other = ([row for row in rows if row.name == evaluator] for rows in (ours, theirs))
        keys = {key for row in mine for key in row.result if key.startswith("instances/")}
        for rate in sorted((key.removeprefix("instances/") for key in keys), key=_rate_order):
            for when in ("first", "last"):
                before, after = _measured(mine, rate, when), _measured(other, rate, when)
                if before is not None and after is not None:
                    yield from _difference(baseline, label, evaluator, rate, when, before, after)


def _rate_order(rate: str) -> tuple[int, str]:
    known = (*RATES, *RESERVED_RATES)
    return (known.index(rate) if rate in known else len(known)), rate


def _measured(rows: Sequence[EvaluationRow], rate: str, when: str) -> EvaluationRow | None:
    """The row of step 0, or the newest later one, that has instances of ``rate``."""
    known = [row for row in rows if row.result.get(f"instances/{rate}") and (row.step == 0) == (when == "first")]
    return known[-1] if known else None


def _difference(
    baseline: str, label: str, evaluator: str, rate: str, when: str, ours: EvaluationRow, theirs: EvaluationRow
) -> Iterable[Difference]:
    a, b = (row.result[f"instances/{rate}"] for row in (ours, theirs))
    found = gain(a, b)
    if found is not None:
        yield Difference(baseline, label, evaluator, rate, when, (ours.step, theirs.step), len(a.keys() & b.keys()), found)


def config_differences(configs: Mapping[str, Mapping[str, Any]]) -> list[ConfigDifference]:
    """Keys (``a.b.c``) that differ between any two of ``configs``, as they are first met. Lists are compared whole."""
    flat = {label: dict(_flat(config)) for label, config in configs.items()}
    keys = dict.fromkeys(key for values in flat.values() for key in values)
    missing = object()
    differing = [
        key for key in keys
        if any(values.get(key, missing) != next(iter(flat.values())).get(key, missing) for values in flat.values())
    ]  # fmt: skip
    return [ConfigDifference(key, {label: values.get(key) for label, values in flat.items()}) for key in differing]


def _flat(config: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in config.items():
        place = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping) and value:
            yield from _flat(value, place)
        else:
            yield place, value


# --- as text ---------------------------------------------------------------------------------------------------------------


def comparison_text(comparison: Comparison) -> str:
    """The comparison as plain text: one column a run, then paired differences, then what was set differently."""
    heads = ("", *(item.label for item in comparison.runs))
    sections = [table("Runs", heads, overview_rows(comparison)), _paired_text(comparison), _config_text(comparison)]
    return "\n\n".join(sections) + "\n"


def overview_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """What each run is and reached: name of the row, then one text for each run."""
    runs = [item.run for item in comparison.runs]
    rows: list[tuple[str, ...]] = [
        ("status", *(f"{run.status}, {run.steps} of {run.steps_planned} steps" for run in runs)),
        ("seed", *(str(run.seed) for run in runs)),
    ]
    for rate in (*RATES, *RESERVED_RATES):
        if any(rate in run.evaluation for run in runs):
            for when in ("before", "after"):
                rows.append((f"{rate}, {when}", *(with_interval(run.evaluation.get(rate, {}).get(when)) for run in runs)))
            rows.append((f"{rate}, change", *(points_text(item.gain.get(rate)) for item in comparison.runs)))
    for when in ("first", "last"):
        rows.append((f"regret, {when} round", *(_regret_text(run.regret[when]) for run in runs)))
    return [
        *rows,
        ("drafts", *(f"{run.drafts:,}, {run.admitted:,} admitted" for run in runs)),
        ("plays", *(f"{run.plays:,}, {run.plays_void:,} void" for run in runs)),
        ("sampled tokens", *(f"{run.sampled_tokens:,}" for run in runs)),
        ("time", *(duration(run.wall_s) for run in runs)),
    ]


def paired_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Every paired difference: run, rate, when, instances, difference."""
    return [
        (
            d.run, f"{d.evaluator}/{d.rate}", f"{d.when} (step {d.steps[1]} against {d.steps[0]})", str(d.instances),
            points_text(d.difference),
        )
        for d in comparison.paired
    ]


def config_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Every key that differs and its value in each run."""
    return [(d.key, *(_config_value(d.values[item.label]) for item in comparison.runs)) for d in comparison.config]


PAIRED_HEADS = ("run", "rate", "when", "instances", "difference")


def _paired_text(comparison: Comparison) -> str:
    title = f"Difference to {comparison.runs[0].label}, over the instances that both measured (95 % intervals)"
    rows = paired_rows(comparison)
    return table(title, PAIRED_HEADS, rows) if rows else "Paired differences: the runs measured no instance in common"


def _config_text(comparison: Comparison) -> str:
    rows = config_rows(comparison)
    heads = ("key", *(item.label for item in comparison.runs))
    return table("Configuration that differs", heads, rows) if rows else "Configuration: the same"


def _regret_text(regret: dict[str, float] | None) -> str:
    return "-" if regret is None else f"{regret['mean']:+.3f} ± {regret['stderr']:.3f} (round {regret['round']:g})"


def _config_value(value: Any) -> str:
    return "-" if value is None else str(value)
