"""A run in numbers: what ``runs list`` and ``runs show`` print."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spade_agentic.errors import RunDirError, StoreError
from spade_agentic.evals.heldout import RATES, RESERVED_RATES

from .layout import RunDir, run_dirs
from .lock import holder
from .progress import mean_regret
from .reader import EvaluationRow, RegretRow, StoreReader

__all__ = ["RunSummary", "list_runs", "show_run"]

BREACH = "audit/breach/"

BeforeAfter = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run. Rates are fractions; intervals are 95 %; ``wall_s`` is the time that its processes were at work.

    ``status``: ``running``, ``finished``, ``interrupted``, ``failed``, ``killed`` (it was running and no process holds it), or
    ``unreadable`` (``error`` then says why, and nothing else is known). ``heldout`` and ``heldout_greedy`` hold the held-out
    success ``before`` training and ``after`` the newest step that was measured, ``None`` where it was not; ``reserved`` and
    ``reserved_greedy`` the same in the domains reserved for evaluation, which are in no other figure.
    ``evaluation`` has all of it with intervals, by rate: ``sampled``, and so on, and ``reserved/sampled``, and so on.
    ``regret`` has the mean unfloored regret of the ``first`` and of the ``last`` round that has one, over environments.
    ``breaches`` counts the steps that broke a check of the training signal, by check, of ``steps_audited`` steps.
    """

    run_dir: str
    run_id: str
    name: str = ""
    status: str = ""
    created_at: str = ""
    seed: int | None = None
    steps: int = 0
    steps_planned: int = 0
    wall_s: float = 0.0
    heldout: BeforeAfter = field(default_factory=lambda: {"before": None, "after": None})
    heldout_greedy: BeforeAfter = field(default_factory=lambda: {"before": None, "after": None})
    reserved: BeforeAfter = field(default_factory=lambda: {"before": None, "after": None})
    reserved_greedy: BeforeAfter = field(default_factory=lambda: {"before": None, "after": None})
    evaluation: dict[str, dict[str, dict[str, float] | None]] = field(default_factory=dict)
    regret: dict[str, dict[str, float] | None] = field(default_factory=lambda: {"first": None, "last": None})
    rounds: int = 0
    drafts: int = 0
    admitted: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    plays: int = 0
    plays_void: int = 0
    sampled_tokens: int = 0
    steps_audited: int = 0
    breaches: dict[str, int] = field(default_factory=dict)
    checkpoint: str | None = None
    paths: dict[str, str] = field(default_factory=dict)
    error: str | None = None


def list_runs(root: Path) -> list[RunSummary]:
    """Every run below ``root``, newest first. A run that cannot be read is listed as ``unreadable`` with the reason."""
    found: list[tuple[float, str, RunSummary]] = []
    for path in run_dirs(root):
        try:
            with StoreReader(path) as reader, reader.snapshot():
                created = float(reader.meta()["created_at"])
                found.append((created, path.name, _summarise(reader)))
        except (RunDirError, StoreError) as error:
            summary = RunSummary(str(path), path.name, status="unreadable", error=str(error))
            found.append((path.stat().st_mtime, path.name, summary))
    return [summary for *_, summary in sorted(found, key=lambda item: item[:2], reverse=True)]


def show_run(run_dir: Path) -> RunSummary:
    """The run in ``run_dir``. Raises :class:`~spade_agentic.errors.RunDirError` where there is none."""
    with StoreReader(run_dir) as reader, reader.snapshot():
        return _summarise(reader)


def _summarise(reader: StoreReader) -> RunSummary:
    meta, run = reader.meta(), reader.dir
    config = meta["config"]
    section = config.get("run", {})
    evaluations = reader.evaluations(config.get("evaluation", {}).get("name", "heldout"))
    before_after = {rate: _before_after(evaluations, rate) for rate in (*RATES, *RESERVED_RATES)}
    totals = reader.totals()
    checkpoint = reader.last_checkpoint()
    audited = [row.metrics for row in reader.metrics() if "audit/breaches" in row.metrics]
    return RunSummary(
        run_dir=str(run.path),
        run_id=meta["run_id"],
        name=section.get("name", ""),
        status=_status(meta["status"], run),
        created_at=time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(meta["created_at"])),
        seed=section.get("seed"),
        steps=reader.last_step() or 0,
        steps_planned=section.get("steps", 0),
        wall_s=max(reader.elapsed_s(), float(meta.get("wall_s", 0.0))),
        heldout=_values(before_after["sampled"]),
        heldout_greedy=_values(before_after["greedy"]),
        reserved=_values(before_after["reserved/sampled"]),
        reserved_greedy=_values(before_after["reserved/greedy"]),
        evaluation={rate: pair for rate, pair in before_after.items() if pair["before"] or pair["after"]},
        regret=_regret(reader),
        rounds=totals["rounds"],
        drafts=totals["drafts"],
        admitted=totals["environments"],
        refused=reader.refusals(),
        plays=totals["plays"],
        plays_void=totals["plays_void"],
        sampled_tokens=totals["sampled_tokens"],
        steps_audited=len(audited),
        breaches=_breaches(audited),
        checkpoint=None if checkpoint is None else str(run.checkpoints / checkpoint),
        paths=_paths(run),
    )


def _status(stored: str, run: RunDir) -> str:
    if stored == "running" and holder(run.lock) is None:
        return "killed"
    return stored


def _before_after(evaluations: Sequence[EvaluationRow], rate: str) -> dict[str, dict[str, float] | None]:
    """The rate before training (step 0) and at the newest later step that was measured, each with its interval."""
    measured = [(row.step, _rate(row, rate)) for row in evaluations]
    known = [(step, value) for step, value in measured if value is not None]
    before = next((value for step, value in known if step == 0), None)
    after = next((value for step, value in reversed(known) if step > 0), None)
    return {"before": before, "after": after}


def _rate(row: EvaluationRow, rate: str) -> dict[str, float] | None:
    key = f"{row.name}/{rate}"
    if not isinstance(row.result.get(key), int | float):
        return None
    return {
        "step": row.step, "value": row.result[key],
        **{end: row.result[f"{key}_{end}"] for end in ("low", "high") if f"{key}_{end}" in row.result},
    }


def _values(pair: dict[str, dict[str, float] | None]) -> BeforeAfter:
    return {when: None if rate is None else rate["value"] for when, rate in pair.items()}


def _regret(reader: StoreReader) -> dict[str, dict[str, float] | None]:
    """Mean regret over the environments of the first and the last round with a regret.

    Of each environment the first measurement counts: that is what the round's designer was rewarded for. A pool keeps some
    environments for longer, and what they measure later says how the agent learned, not what the round was worth.
    """
    round_of = {row.environment.env_id: row.environment.round_index for row in reader.environments()}
    measured: dict[str, RegretRow] = {}
    for row in reader.regrets():
        measured.setdefault(row.env_id, row)
    rounds: dict[int, list[Any]] = defaultdict(list)
    for row in measured.values():
        rounds[round_of[row.env_id]].append(row.regret)
    result: dict[str, dict[str, float] | None] = {"first": None, "last": None}
    for when, pick in (("first", min), ("last", max)):
        if rounds:
            index = pick(rounds)
            summed = mean_regret(rounds[index])
            assert summed is not None
            mean, stderr, count = summed
            result[when] = {"round": index, "mean": mean, "stderr": stderr, "environments": count}
    return result


def _breaches(audited: Sequence[Mapping[str, float]]) -> dict[str, int]:
    """Steps that broke each check, most frequent first."""
    found = Counter(name.removeprefix(BREACH) for metrics in audited for name in metrics if name.startswith(BREACH))
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _paths(run: RunDir) -> dict[str, str]:
    """The files of the run that exist."""
    known = {
        "report": run.report, "store": run.store, "checkpoints": run.checkpoints, "metrics": run.metrics,
        "tensorboard": run.tensorboard, "transcripts": run.transcripts, "events": run.events, "engine_log": run.engine_log,
        "config": run.config,
    }
    return {name: str(path) for name, path in known.items() if path.exists()}
