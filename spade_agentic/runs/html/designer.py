"""What the designer made: its choices over the rounds, what the gates refused and why, and how much of it could be learned."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from spade_agentic.envs.gates import GATES
from spade_agentic.evals.stats import wilson
from spade_agentic.hooks.records import Arm, Draft

from ..reader import EnvironmentPlays
from .facts import Facts, domain_of, goals_of, mean_and_stderr, modifiers_of, most_used, win_rate
from .model import COLOURS, Cell, Dots, Figure, Funnel, Lines, Part, Point, Section, Series, Stack, Table

__all__ = ["choices_section", "gates_section", "learnable_section"]

LEARNABLE = (0.2, 0.8)
"""An environment can be learned from while its win rate lies in here (paper, section 5); as in the metrics of a run."""
LISTED_GOALS, LISTED_MODIFIERS, LISTED_ROUNDS, LISTED_REASONS, DETAIL_CHARACTERS = 20, 30, 16, 40, 300
SHOWN_REASONS = 6
"""Refusal reasons that get a colour of their own, beside the admitted drafts and all other reasons."""


def choices_section(facts: Facts) -> Section:
    """Skills, domains, number of goals, modifiers and goals of the admitted programs, round by round."""
    section = Section(
        "designer", "The designer's choices",
        "What the programs that were admitted are made of, round by round. The skill of a slot is named by the curriculum; the "
        "rest is the designer's own choice.",
    )
    admitted = [d for d in facts.drafts if d.refusal is None and d.program is not None]
    if not admitted:
        section.notes.append("No draft was admitted.")
        return section
    _stack(section, facts, "Skills", "Admitted programs by skill.", admitted, lambda d: d.skill.value)
    _stack(section, facts, "Domains", "Admitted programs by domain.", admitted, lambda d: domain_of(_origin(d)))
    with_goals = [d for d in admitted if goals_of(_origin(d)) is not None]
    if with_goals:
        title, caption = "Goals per program", "Admitted programs by the number of goals that a request chains."
        _stack(section, facts, title, caption, with_goals, lambda d: _count(goals_of(_origin(d)) or []))
        section.tables.append(_goals(facts, with_goals))
    else:
        section.missing("Goals (this designer's programs name none)")
    with_mods = [d for d in admitted if modifiers_of(_origin(d)) is not None]
    if with_mods:
        section.tables.append(_modifiers(facts, with_mods))
    else:
        section.missing("Modifiers (this designer's programs name none)")
    return section


def _origin(draft: Draft) -> object:
    assert draft.program is not None
    return draft.program.origin


def _count(goals: Sequence[str]) -> str:
    return f"{len(goals)} goal" + ("" if len(goals) == 1 else "s")


def _stack(
    section: Section, facts: Facts, title: str, caption: str, drafts: Iterable[Draft], of: Callable[[Draft], str]
) -> None:
    named = [(draft.round_index, of(draft)) for draft in drafts]
    kept, others = most_used((name for _, name in named), COLOURS - 1)
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for index, name in named:
        counts[name if name in kept else f"{others} others"][index] += 1
    names = [*kept, *(name for name in counts if name not in kept)]
    parts = tuple(Part(name, tuple(float(counts[name][r]) for r in facts.rounds)) for name in names)
    columns = tuple(str(r) for r in facts.rounds)
    section.figures.append(Figure(title, caption, Stack("round", "share", columns, parts, shares=True), small=True))


def _modifiers(facts: Facts, drafts: Sequence[Draft]) -> Table:
    """Share of each round's admitted programs that have a modifier."""
    totals = Counter(draft.round_index for draft in drafts)
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for draft in drafts:
        for name in modifiers_of(_origin(draft)) or ["(none)"]:
            counts[name][draft.round_index] += 1
    every = -(-len(facts.rounds) // LISTED_ROUNDS)
    rounds = facts.rounds[:: max(1, every)]
    names, others = most_used((name for name, found in counts.items() for _ in range(found.total())), LISTED_MODIFIERS)
    rows: list[tuple[Cell, ...]] = [
        (name, *(counts[name][r] / totals[r] if totals[r] else None for r in rounds)) for name in names
    ]
    cut = "" if every <= 1 else f", one round in {every}"
    cut += f", the {LISTED_MODIFIERS} most used; there are {others} more" if others else ""
    heads = ("modifier", *(f"round {r}" for r in rounds))
    return Table(f"Modifiers: share of each round's admitted programs{cut}", heads, tuple(rows), shares=True)


def _goals(facts: Facts, drafts: Sequence[Draft]) -> Table:
    """The goals that were used most, and how their environments fared. An environment counts for each of its goals."""
    env_of = {environment.draft_id: env_id for env_id, environment in facts.environments.items()}
    plays: dict[str, list[EnvironmentPlays]] = defaultdict(list)
    for cell in facts.plays:
        plays[cell.env_id].append(cell)
    users: dict[str, list[str]] = defaultdict(list)
    for draft in drafts:
        for goal in sorted(set(goals_of(_origin(draft)) or [])):
            if draft.draft_id in env_of:
                users[goal].append(env_of[draft.draft_id])
    rows: list[tuple[Cell, ...]] = []
    for goal, envs in sorted(users.items(), key=lambda item: (-len(item[1]), item[0]))[:LISTED_GOALS]:
        rates = [win_rate(c for env in envs for c in plays[env] if c.arm is arm) for arm in Arm]
        regrets = [facts.regrets[env].mean for env in envs if env in facts.regrets]
        mean = mean_and_stderr(regrets)[0] if regrets else None
        rows.append((goal, len(envs), *(None if rate is None else rate.value for rate in rates), mean))
    of = f", the {LISTED_GOALS} most used of {len(users)}" if len(users) > LISTED_GOALS else ""
    return Table(
        f"Goals{of}", ("goal", "environments", *(f"{arm.value} win rate" for arm in Arm), "mean regret"), tuple(rows)
    )


# --- gates -----------------------------------------------------------------------------------------------------------------


def gates_section(facts: Facts) -> Section:
    """From drafts to admitted programs: what each gate let through, and why it refused the rest."""
    section = Section(
        "gates", "What the gates refused",
        "Every draft goes through the same gates in the same order: the designer's own compiler first, then those of the "
        "framework. A bar is how many drafts were left after a gate.",
    )
    if not facts.drafts:
        section.missing("Drafts")
        return section
    by_gate = Counter(d.refusal.gate for d in facts.drafts if d.refusal is not None)
    left, stages = len(facts.drafts), [("drafts", len(facts.drafts))]
    for gate in [*sorted(gate for gate in by_gate if gate not in GATES), *(gate for gate in GATES if gate in by_gate)]:
        left -= by_gate[gate]
        stages.append((f"after {gate}", left))
    chart = Funnel("drafts", tuple(stages))
    section.figures.append(Figure("From drafts to environments", "Drafts left after each gate that refused any.", chart))
    _refusals(section, facts)
    return section


def _refusals(section: Section, facts: Facts) -> None:
    reasons: dict[str, list[Draft]] = defaultdict(list)
    for draft in facts.drafts:
        if draft.refusal is not None:
            reasons[f"{draft.refusal.gate}:{draft.refusal.code}"].append(draft)
    ordered = sorted(reasons, key=lambda reason: (-len(reasons[reason]), reason))
    if not ordered:
        section.notes.append("Nothing was refused.")
        return
    groups = {"admitted": [d for d in facts.drafts if d.refusal is None]}
    groups |= {reason: reasons[reason] for reason in ordered[:SHOWN_REASONS]}
    if rest := ordered[SHOWN_REASONS:]:
        groups["other reasons"] = [d for reason in rest for d in reasons[reason]]
    counts = {name: Counter(d.round_index for d in drafts) for name, drafts in groups.items()}
    parts = [Part(name, tuple(float(counted[r]) for r in facts.rounds)) for name, counted in counts.items()]
    section.figures.append(
        Figure(
            "Drafts by outcome", "Drafts of each round: admitted, and refused by reason.",
            Stack("round", "drafts", tuple(map(str, facts.rounds)), tuple(parts)),
        )
    )
    total = len(facts.drafts)
    rows = tuple((r, len(reasons[r]), len(reasons[r]) / total, _detail(reasons[r][0])) for r in ordered[:LISTED_REASONS])
    more = f", the {LISTED_REASONS} most frequent of {len(ordered)} reasons" if len(ordered) > LISTED_REASONS else ""
    section.tables.append(Table(f"Refusals{more}", ("reason", "drafts", "share of drafts", "for example"), rows))


def _detail(draft: Draft) -> str:
    assert draft.refusal is not None
    detail = draft.refusal.detail
    return detail if len(detail) <= DETAIL_CHARACTERS else detail[:DETAIL_CHARACTERS] + " ..."


# --- what could be learned -------------------------------------------------------------------------------------------------


def learnable_section(facts: Facts) -> Section:
    """The share of environments that the agent wins sometimes: neither never nor nearly always."""
    low, high = LEARNABLE
    section = Section(
        "learnable", "Learnable share",
        f"An environment teaches something while its plain win rate lies between {low} and {high}: a group of plays that are "
        "all won or all lost has no advantage.",
    )
    groups: dict[tuple[int, str], list[EnvironmentPlays]] = defaultdict(list)
    for cell in facts.plays:
        index = facts.round_at(cell.step)
        if cell.arm is Arm.PLAIN and index is not None:
            groups[index, cell.env_id].append(cell)
    known = [(key, win_rate(cells)) for key, cells in sorted(groups.items())]
    rates = [(index, env, rate.value) for (index, env), rate in known if rate is not None]
    if not rates:
        section.missing("Plain plays")
        return section
    shares = []
    for index in sorted({index for index, *_ in rates}):
        mine = [rate for at, _, rate in rates if at == index]
        share = wilson(sum(low <= rate <= high for rate in mine), len(mine))
        shares.append(Point(index, share.value, share.low, share.high))
    dots = Dots("environments", tuple(Point(index, rate) for index, _, rate in rates), tuple(env for _, env, _ in rates))
    section.figures.append(
        Figure(
            "Learnable share by round",
            "Share of the environments that were played in a round; the band is Wilson's 95 % interval.",
            Lines("round", "share", (Series("learnable", tuple(shares)),), y_range=(0.0, 1.0), percent=True),
        )
    )
    section.figures.append(
        Figure(
            "Win rates of the environments",
            "Each dot is one environment in one round; the shaded stripe is the learnable range.",
            Lines("round", "plain win rate", (), dots=(dots,), y_range=(0.0, 1.0), percent=True, zone=LEARNABLE),
        )
    )
    return section
