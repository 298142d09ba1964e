"""From a blueprint to a complete program."""

from __future__ import annotations

from dataclasses import replace

from spade_agentic import Program
from spade_agentic_sims.kit import Chain
from spade_agentic_sims.source import chain_program

from .grammar import Blueprint

__all__ = ["compile_blueprint"]


def compile_blueprint(blueprint: Blueprint) -> Program:
    """A readable program with one class. ``origin`` has the blueprint, domain, goals, modifiers and the procedural hint."""
    program = chain_program(Chain(blueprint.domain, blueprint.goals, blueprint.mods), blueprint.skill)
    origin = {"designer": "blueprint", "blueprint": blueprint.text(), **program.origin}
    return replace(program, origin=origin, canonical=blueprint.world())
