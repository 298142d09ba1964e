"""From a chain to the source of a complete program."""

from __future__ import annotations

from spade_agentic import Program, Skill

from .kit import Chain, Mods, chain_hint, chain_skills, default_turns, get_domain

__all__ = ["chain_program", "chain_source", "changed_mods"]

_TEMPLATE = '''\
"""{title}"""

from {module} import {base}
from spade_agentic_sims.kit import Mods


class World({base}):
    """{summary}"""

    chain = {chain}
    mods = {mods}
    max_turns = {turns}
'''


def chain_source(chain: Chain, skill: Skill) -> str:
    """A readable program with one class, which behaves as ``chain.env()`` does."""
    domain = get_domain(chain.domain)
    goals = ", ".join(f'"{name}"' for name in chain.goals)
    return _TEMPLATE.format(
        title=f"{chain.domain}: {', then '.join(chain.goals)} ({skill.value}).",
        module=domain.__module__.removesuffix(".env"),
        base=domain.__name__,
        summary=_summary(chain.mods, domain.mend_tool),
        chain=f"({goals},)" if len(chain.goals) == 1 else f"({goals})",
        mods=f"Mods({', '.join(f'{name}={value!r}' for name, value in changed_mods(chain.mods).items())})".replace("'", '"'),
        turns=chain.mods.turns or default_turns(chain.domain, chain.goals, chain.mods),
    )


def chain_program(chain: Chain, skill: Skill | None = None) -> Program:
    """The program of a chain with its procedural hint in ``origin``; ``skill`` is by default the first that it trains."""
    skill = skill or min(chain_skills(chain.domain, chain.goals, chain.mods))
    origin = {
        "domain": chain.domain,
        "goals": list(chain.goals),
        "mods": changed_mods(chain.mods),
        "hint": chain_hint(chain.domain, chain.goals, chain.mods),
    }
    return Program(chain_source(chain, skill), skill, origin=origin)


def changed_mods(mods: Mods) -> dict[str, str | int | bool]:
    """The modifiers that differ from their defaults."""
    values = {name: getattr(mods, name) for name in Mods.__dataclass_fields__}
    return {name: value for name, value in values.items() if value not in (None, False, 0)}


def _summary(mods: Mods, mend_tool: str) -> str:
    parts = []
    if mods.hide_id:
        parts.append("requests give names, not ids")
    if mods.hide_secret:
        parts.append("one value is told nowhere")
    if mods.fault:
        fails = "never works" if mods.fault_always else f"fails once (then {mend_tool}, or the same call again)"
        parts.append(f"{mods.fault} {fails}")
    if mods.leak:
        parts.append("requests show their solution")
    return (", ".join(parts) or "a plain world").capitalize() + "."
