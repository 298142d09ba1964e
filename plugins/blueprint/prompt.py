"""What the designer is asked, and drawn blueprints as a warm start imitates them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spade_agentic import DesignRequest, MemoryEntry, Skill, UserError
from spade_agentic_sims.kit import MAX_CHAIN, Mods, chain_skills, default_turns, draw_chain, get_domain, needed_tools

from .grammar import MAX_DISTRACT, Blueprint, BlueprintError, parse_blueprint

__all__ = ["DEFAULT_DOMAINS", "Offer", "offer_for", "prompt_messages", "random_blueprint"]

DEFAULT_DOMAINS = ("banking", "support", "retail", "telecom")
OFFERED_GOALS = 8

_SYSTEM = """\
You design practice worlds for an agent that uses tools. Write one blueprint:
domain: as given
skill: as given
goals: one to three of those given
Then, if useful:
hide: id
fault: one tool of the goals
distract: 1 to 4
turns: limit
The best world can be won, but the agent often fails without help."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What one request offers to the designer: a domain, and some of its goals."""

    domain: str
    goals: tuple[str, ...]


def offer_for(request: DesignRequest, domains: Sequence[str] = DEFAULT_DOMAINS) -> Offer:
    """The domain and goals of a request, drawn by its seed, so that rounds differ; some goals always train its skill."""
    rng = random.Random(f"offer|{request.seed}")
    domain = rng.choice(sorted(domains))
    names = sorted(get_domain(domain).goal_kinds)
    rng.shuffle(names)
    fitting = [name for name in names if request.skill in chain_skills(domain, [name], Mods())]
    chosen = set(fitting[: OFFERED_GOALS // 2])
    chosen |= set([name for name in names if name not in chosen][: OFFERED_GOALS - len(chosen)])
    return Offer(domain, tuple(name for name in names if name in chosen))


def prompt_messages(request: DesignRequest, domains: Sequence[str] = DEFAULT_DOMAINS) -> list[dict[str, str]]:
    """The designer's prompt: the grammar in brief, the offer, and what the memory says about earlier worlds."""
    offer = offer_for(request, domains)
    kinds = get_domain(offer.domain).goal_kinds
    lines = [f"domain: {offer.domain}", f"skill: {request.skill.value}", "goals and their tools:"]
    lines += [f"{name}: {', '.join(kinds[name].tools)}" for name in offer.goals]
    remembered = [*request.seeds, *([request.counter_example] if request.counter_example else [])]
    lines += [line for line in map(_memory_line, remembered) if line]
    if request.document:
        lines.append(f"document: {' '.join(request.document.split()[:40])}")
    return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": "\n".join(lines)}]


def _memory_line(entry: MemoryEntry) -> str | None:
    """An earlier blueprint on one line with how it went; ``None`` for one that never was a blueprint."""
    try:
        blueprint = parse_blueprint(entry.source)
    except BlueprintError:
        return None
    rate = entry.win_rate
    verdict = "refused" if rate is None else "too easy" if rate > 0.85 else "too hard" if rate < 0.15 else "good"
    world = "; ".join(line for line in blueprint.lines() if not line.startswith("skill: "))
    return f"{verdict}: {world}"


def random_blueprint(
    rng: random.Random, skill: Skill, *, domain: str | None = None, goals: Sequence[str] | None = None
) -> str:
    """Draw a well-formed blueprint that trains ``skill``: mostly a sound world, now and then a bad one. Never a reserved chain.

    ``domain`` and ``goals`` confine it to what a prompt offers. Raises :class:`UserError` where these train no such skill.
    """
    domain = domain or rng.choice(DEFAULT_DOMAINS)
    for _ in range(1_000):
        length = rng.choices(range(1, MAX_CHAIN + 1), (0.45, 0.4, 0.15))[0]
        chosen = draw_chain(rng, domain, length, goals=goals).goals
        mods = _random_mods(rng, domain, chosen, wants_fault=skill == Skill.ERROR_RECOVERY)
        if skill in chain_skills(domain, chosen, mods):
            return Blueprint(domain, skill, chosen, mods).text()
    raise UserError(f"no chain of these goals trains {skill.value}", where=domain, todo="offer other goals")


def _random_mods(rng: random.Random, domain: str, goals: Sequence[str], *, wants_fault: bool) -> Mods:
    hide_id = rng.random() < 0.45
    tools = sorted(needed_tools(get_domain(domain), goals, Mods(hide_id=hide_id)))
    fault = rng.choice(tools) if rng.random() < (0.85 if wants_fault else 0.25) else None
    mods = Mods(
        hide_id=hide_id,
        hide_secret=rng.random() < 0.03,
        fault=fault,
        fault_always=fault is not None and rng.random() < 0.05,
        distract=rng.randint(1, MAX_DISTRACT) if rng.random() < 0.4 else 0,
        leak=rng.random() < 0.02,
    )
    if rng.random() >= 0.3:
        return mods
    needed = default_turns(domain, goals, mods)
    values: Mapping[str, object] = {name: getattr(mods, name) for name in Mods.__dataclass_fields__}
    turns = max(1, needed - rng.randint(3, 5)) if rng.random() < 0.15 else needed + rng.randint(-2, 4)
    return Mods(**{**values, "turns": turns})  # type: ignore[arg-type]
