"""From a blueprint to a complete program."""

from __future__ import annotations

from spade_agentic import Program
from spade_agentic_sims.kit import Mods, chain_hint, default_turns, get_domain

from .grammar import Blueprint

__all__ = ["compile_blueprint"]

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


def compile_blueprint(blueprint: Blueprint) -> Program:
    """A readable program with one class. ``origin`` has the blueprint, domain, goals, modifiers and the procedural hint."""
    domain = get_domain(blueprint.domain)
    turns = blueprint.mods.turns or default_turns(blueprint.domain, blueprint.goals, blueprint.mods)
    changed = _changed(blueprint.mods)
    chain = ", ".join(f'"{name}"' for name in blueprint.goals)
    source = _TEMPLATE.format(
        title=f"{blueprint.domain}: {', then '.join(blueprint.goals)} ({blueprint.skill.value}).",
        module=domain.__module__.removesuffix(".env"),
        base=domain.__name__,
        summary=_summary(blueprint.mods, domain.mend_tool),
        chain=f"({chain},)" if len(blueprint.goals) == 1 else f"({chain})",
        mods=f"Mods({', '.join(f'{name}={value!r}' for name, value in changed.items())})".replace("'", '"'),
        turns=turns,
    )
    origin = {
        "designer": "blueprint",
        "blueprint": blueprint.text(),
        "domain": blueprint.domain,
        "goals": list(blueprint.goals),
        "mods": changed,
        "hint": chain_hint(blueprint.domain, blueprint.goals, blueprint.mods),
    }
    return Program(source, blueprint.skill, origin=origin, canonical=blueprint.world())


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
