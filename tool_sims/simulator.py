"""A domain of the kit as a plugin shows it to the framework."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from spade_agentic import Factory, Program, ToolSim

from .kit import RESERVED_DOMAINS, Chain, Mods, describe_domain, draw_chain, get_domain
from .source import chain_program

__all__ = ["Simulator", "simulator_factory"]


@dataclass(slots=True)
class Simulator:
    """One domain. ``module`` is what a program imports inside the sandbox; importing it registers the domain."""

    name: str
    module: str

    def describe(self) -> dict[str, Any]:
        return describe_domain(self.name)

    def example(self, *, seed: int) -> Program:
        """A solvable program with one or two goals that are not kept for evaluation; some hide ids, some fail once."""
        rng = random.Random(f"example|{seed}")
        drawn = draw_chain(rng, self.name, rng.randint(1, 2))
        fault = get_domain(self.name).goal_kinds[drawn.goals[0]].tools[0] if rng.random() < 0.3 else None
        return chain_program(Chain(self.name, drawn.goals, Mods(hide_id=rng.random() < 0.5, fault=fault)))


def simulator_factory(name: str, module: str, doc: str) -> Factory[ToolSim]:
    """The factory that a simulator's ``tool_sim`` hook returns."""
    return Factory(name, lambda options, context: Simulator(name, module), doc=doc, reserved=name in RESERVED_DOMAINS)
