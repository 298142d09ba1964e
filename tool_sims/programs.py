"""From a chain to a complete program, and the plugin object of a simulator."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from spade_agentic import Factory, Program, Skill, ToolSim

from .kit import Chain, Mods, chain_hint, chain_skills, default_turns, describe_domain, draw_chain, get_domain

__all__ = ["DomainSim", "chain_program", "domain_factory"]

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


def chain_program(
    chain: Chain, skill: Skill, *, origin: Mapping[str, Any] | None = None, canonical: str | None = None
) -> Program:
    """A readable program with one class. ``origin`` gets domain, goals, modifiers and the procedural hint."""
    domain, mods = get_domain(chain.domain), chain.mods
    changed = _changed(mods)
    goals = ", ".join(f'"{name}"' for name in chain.goals)
    source = _TEMPLATE.format(
        title=f"{chain.domain}: {', then '.join(chain.goals)} ({skill.value}).",
        module=domain.__module__.removesuffix(".env"),
        base=domain.__name__,
        summary=_summary(mods, domain.mend_tool),
        chain=f"({goals},)" if len(chain.goals) == 1 else f"({goals})",
        mods=f"Mods({', '.join(f'{name}={value!r}' for name, value in changed.items())})".replace("'", '"'),
        turns=mods.turns or default_turns(chain.domain, chain.goals, mods),
    )
    world = {
        "domain": chain.domain, "goals": list(chain.goals), "mods": changed,
        "hint": chain_hint(chain.domain, chain.goals, mods),
    }
    return Program(source, skill, origin={**(origin or {}), **world}, canonical=canonical)


def _changed(mods: Mods) -> dict[str, str | int | bool]:
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


class DomainSim:
    """A :class:`~spade_agentic.ToolSim` for one domain of the kit."""

    def __init__(self, name: str, module: str) -> None:
        self.name, self.module = name, module

    def describe(self) -> dict[str, Any]:
        return describe_domain(self.name)

    def example(self, *, seed: int) -> Program:
        """A world of one or two goals that is not kept for evaluation."""
        rng = random.Random(f"example|{self.name}|{seed}")
        chain = draw_chain(rng, self.name, rng.randint(1, 2), mods=Mods(hide_id=rng.random() < 0.5, distract=rng.randint(0, 2)))
        return chain_program(chain, min(chain_skills(chain.domain, chain.goals, chain.mods)))


def domain_factory(name: str, module: str, doc: str) -> Sequence[Factory[ToolSim]]:
    """What a simulator's ``tool_sim`` hook returns."""
    return [Factory(name, lambda options, context: DomainSim(name, module), doc=doc)]
