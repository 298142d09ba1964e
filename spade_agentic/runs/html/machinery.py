"""How the run went as a computation: engine against learner, staleness, time and tokens."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable

from spade_agentic.hooks.records import Arm, Role

from ..live import duration
from .facts import Facts
from .model import Cell, Figure, Lines, Part, Point, Section, Series, Stack, Table

__all__ = ["mismatch_section", "time_section"]

STAGES = ("starting", "evaluating", "designing", "playing", "updating", "committing", "publishing")
"""Where a step spends its time; any other stage that was recorded comes after these."""


def mismatch_section(facts: Facts) -> Section:
    """How far the engine that samples and the learner that trains are apart, and how old the sampled tokens are."""
    section = Section(
        "mismatch", "Engine and learner",
        "The same weights give slightly different probabilities in the engine that samples and in the learner that trains. "
        "Drafts are sampled up to an interval before they are trained, so the designer's difference is one of weights too.",
    )
    for role in Role:
        quantiles = [(name, f"{role.value}/ratio_{name}") for name in ("p01", "p50", "mean", "p99")]
        curves = tuple(s for name, key in quantiles if (s := _series(facts, name, key, _log)).points)
        if curves:
            section.figures.append(
                Figure(
                    f"Log-probability difference, {role.value}",
                    f"Learner minus engine on the {role.value}'s trained tokens: quantiles, and the log of the mean ratio.",
                    Lines("step", "nats", curves, zero=True),
                )
            )
        else:
            section.missing(f"Log-probability differences of the {role.value}")
    divergence = tuple(s for role in Role if (s := _series(facts, role.value, f"{role.value}/mismatch_kl")).points)
    if divergence:
        caption = "Divergence of the learner's distribution from the engine's, on the trained tokens."
        section.figures.append(Figure("Mismatch", caption, Lines("step", "nats", divergence, zero=True)))
    _staleness(section, facts)
    return section


def _staleness(section: Section, facts: Facts) -> None:
    keys = [(f"{role.value}, {which}", f"{role.value}/staleness_{which}") for role in Role for which in ("mean", "max")]
    curves = tuple(s for name, key in keys if (s := _series(facts, name, key)).points)
    if curves:
        caption = "Updates between the weights that sampled a trained token and those that train on it."
        section.figures.append(Figure("Staleness", caption, Lines("step", "updates", curves, zero=True)))
    else:
        section.missing("Staleness")


def _series(facts: Facts, name: str, key: str, change: Callable[[float], float | None] = lambda value: value) -> Series:
    values = [(row.step, change(row.metrics[key])) for row in facts.metrics if key in row.metrics]
    return Series(name, tuple(Point(step, value) for step, value in values if value is not None and math.isfinite(value)))


def _log(ratio: float) -> float | None:
    return math.log(ratio) if ratio > 0 else None


# --- time and tokens -------------------------------------------------------------------------------------------------------


def time_section(facts: Facts) -> Section:
    """Where the time and the tokens went."""
    lead = "Per step, and over the run. What a killed attempt at a step spent is in no step."
    section = Section("time", "Time and tokens", lead)
    if not facts.metrics:
        section.missing("Steps")
        return section
    _time(section, facts)
    _tokens(section, facts)
    return section


def _time(section: Section, facts: Facts) -> None:
    steps = tuple(str(row.step) for row in facts.metrics)
    after = facts.meta.get("stage_s", {})
    known = {k.removeprefix("time/").removesuffix("_s") for row in facts.metrics for k in row.metrics if k.startswith("time/")}
    stages = [*(s for s in STAGES if s in known), *sorted(known - set(STAGES))]
    if not stages:
        section.missing("Time per stage")
        elapsed = [0.0, *(row.elapsed_s for row in facts.metrics)]
        spent = tuple(later - sooner for sooner, later in itertools.pairwise(elapsed))
        section.figures.append(
            Figure("Time by step", "Seconds from commit to commit.", Stack("step", "seconds", steps, (Part("step", spent),)))
        )
        return
    parts = tuple(Part(s, tuple(row.metrics.get(f"time/{s}_s", 0.0) for row in facts.metrics)) for s in stages)
    section.figures.append(
        Figure(
            "Time by step", "Seconds by stage, from commit to commit: a step's own commit counts for the next one.",
            Stack("step", "seconds", steps, parts),
        )
    )
    totals = {part.name: math.fsum(part.values) for part in parts}
    for stage, seconds in after.items():  # what came after the last commit
        totals[stage] = totals.get(stage, 0.0) + seconds
    whole = math.fsum(totals.values())
    rows: list[tuple[Cell, ...]] = [(s, duration(t), t / whole if whole else None) for s, t in totals.items()]
    section.tables.append(Table("Time by stage, over the run", ("stage", "time", "share"), tuple(rows)))


def _tokens(section: Section, facts: Facts) -> None:
    columns = [row.step for row in facts.metrics]
    by_arm: dict[Arm, dict[int, int]] = {arm: defaultdict(int) for arm in Arm}
    for cell in facts.plays:
        by_arm[cell.arm][cell.step] += cell.sampled_tokens
    drafts = tuple(row.metrics.get("round/draft_tokens", 0.0) * row.metrics.get("round/drafts", 0) for row in facts.metrics)
    parts = [Part(f"{arm.value} plays", tuple(float(by_arm[arm][step]) for step in columns)) for arm in Arm]
    parts.append(Part("drafts", drafts))
    section.figures.append(
        Figure(
            "Sampled tokens by step", "Tokens that the policy sampled in plays and drafts.",
            Stack("step", "tokens", tuple(map(str, columns)), tuple(parts)),
        )
    )
    trained = [(f"{role.value}: trained", f"{role.value}/tokens") for role in Role]
    rows: list[tuple[Cell, ...]] = [(part.name + ": sampled", round(math.fsum(part.values))) for part in parts]
    rows += [(name, round(math.fsum(row.metrics.get(key, 0.0) for row in facts.metrics))) for name, key in trained]
    section.tables.append(Table("Tokens over the run", ("what", "tokens"), tuple(rows)))
    section.missing("Tokens of hints and of evaluations")
