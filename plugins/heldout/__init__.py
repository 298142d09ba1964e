"""The evaluator ``heldout``: simulated worlds whose goal chains are kept for evaluation, on instances never trained on.

Chains that are reserved (:func:`spade_agentic_sims.kit.is_reserved`) are refused as training environments and are not in
the warm start either; seeds start at :data:`spade_agentic_sims.kit.HELD_OUT_SEED`. Every reserved chain of a length comes up
before one comes up twice, so the list is a census of chains and a sample of instances: that is what the intervals are about.

Domains that are reserved as a whole (:data:`spade_agentic_sims.kit.RESERVED_DOMAINS`) are measured in the same way, on a list
of their own, and answered apart: what the agent does in a domain that it has never seen is another question.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

from pydantic import Field, field_validator

from spade_agentic import EvalInstance, Evaluator, Factory, HeldOutEvaluator, Options, PluginError, Program, hookimpl
from spade_agentic_plugins.blueprint import Blueprint, compile_blueprint, reserved_reason
from spade_agentic_sims.kit import HELD_OUT_SEED, RESERVED_DOMAINS, Chain, Mods, chain_skills, get_domain, is_reserved

__all__ = ["HeldOutOptions", "evaluator", "held_out_chains", "held_out_instances", "reserved_instances"]

IDLE_PASSES = 50
"""Passes over all chains that draw no new world before there is taken to be none."""


class HeldOutOptions(Options):
    """How much is measured.

    Plays of one evaluation: (domains x chains + reserved domains x reserved_chains) x instances x (repeats + 1 +
    hinted_repeats).
    """

    domains: tuple[str, ...] | None = Field(default=None, description="Domains to measure; the run's tool_sims by default.")
    lengths: tuple[int, ...] = Field(default=(2,), min_length=1, description="Goals in a chain: 2 or 3.")
    chains: int = Field(default=32, ge=1, description="Worlds of each domain.")
    reserved_chains: int = Field(
        default=8, ge=0,
        description="Worlds of each domain that no run is trained in, measured apart and never averaged in; 0 leaves them out.",
    )  # fmt: skip
    instances: int = Field(default=4, ge=1, description="Instances of each world.")
    repeats: int = Field(default=2, ge=1, description="Sampled plays of each instance.")
    hinted_repeats: int = Field(default=1, ge=0, description="Hinted plays of each instance; 0 leaves them out.")
    hidden: float = Field(default=0.4, ge=0.0, le=1.0, description="Share of worlds that give names instead of ids.")
    faults: float = Field(default=0.3, ge=0.0, le=1.0, description="Share of worlds in which one tool fails at first.")
    seed: int = Field(default=0, ge=0, description="Which worlds and instances; the same for every run that is compared.")

    @field_validator("domains")
    @classmethod
    def _reserved_ones_are_measured_apart(cls, domains: tuple[str, ...] | None) -> tuple[str, ...] | None:
        reserved = [name for name in domains or () if name in RESERVED_DOMAINS]
        if reserved:
            raise ValueError(f"{', '.join(reserved)} is reserved and measured apart; leave it out and set reserved_chains")
        return domains


def held_out_chains(domain: str, options: HeldOutOptions) -> list[Chain]:
    """Different worlds of ``domain``, all on reserved chains, evenly over them: ``options.chains``, or ``reserved_chains``.

    Raises :class:`PluginError` where no chain of these lengths is reserved.
    """
    goals = sorted(get_domain(domain).goal_kinds)
    chains = [c for n in options.lengths for c in itertools.product(goals, repeat=n) if is_reserved(domain, c)]
    if not chains:
        raise PluginError(
            f"no chain of {domain} with {' or '.join(map(str, options.lengths))} goals is reserved",
            where="evaluation.options.lengths", todo="measure chains of 2 or 3 goals",
        )
    apart = domain in RESERVED_DOMAINS
    wanted, option = (options.reserved_chains, "reserved_chains") if apart else (options.chains, "chains")
    rng = random.Random(f"heldout|{options.seed}|{domain}")
    worlds: dict[Chain, None] = {}
    idle = 0
    while idle < IDLE_PASSES:
        known = len(worlds)
        rng.shuffle(chains)
        for chain in chains:
            worlds.setdefault(Chain(domain, chain, _draw_mods(rng, domain, chain, options)))
            if len(worlds) == wanted:
                return list(worlds)
        idle = idle + 1 if len(worlds) == known else 0
    raise PluginError(
        f"{domain} has only {len(worlds)} different held-out worlds of this kind", where=f"evaluation.options.{option}",
        todo=f"ask for at most {len(worlds)}, or for further lengths",
    )


def held_out_instances(domains: Sequence[str], options: HeldOutOptions) -> list[EvalInstance]:
    """The instances that are measured, with a seed of its own for each."""
    return _with_seeds(domains, options, "seeds")


def reserved_instances(options: HeldOutOptions) -> list[EvalInstance]:
    """The same of the reserved domains; none where ``options.reserved_chains`` is 0. They leave the other list as it is."""
    return _with_seeds(RESERVED_DOMAINS, options, "reserved seeds") if options.reserved_chains else []


def _with_seeds(domains: Sequence[str], options: HeldOutOptions, stream: str) -> list[EvalInstance]:
    programs = [_program(chain) for domain in domains for chain in held_out_chains(domain, options)]
    rng = random.Random(f"heldout|{options.seed}|{stream}")
    seeds = rng.sample(range(HELD_OUT_SEED, 2 * HELD_OUT_SEED), len(programs) * options.instances)
    return list(zip([p for p in programs for _ in range(options.instances)], seeds, strict=True))


def _draw_mods(rng: random.Random, domain: str, goals: Sequence[str], options: HeldOutOptions) -> Mods:
    """Modifiers as the warm start and a sensible designer draw them: nothing that makes a world unsolvable or leaky."""
    kinds = get_domain(domain).goal_kinds
    tools = sorted({tool for goal in goals for tool in kinds[goal].tools})
    fault = rng.choice(tools) if rng.random() < options.faults else None
    return Mods(hide_id=rng.random() < options.hidden, fault=fault, distract=rng.randrange(3))


def _program(chain: Chain) -> Program:
    """The same source that a designer's blueprint of this world compiles to."""
    skill = min(chain_skills(chain.domain, chain.goals, chain.mods))
    return compile_blueprint(Blueprint(chain.domain, skill, chain.goals, chain.mods))


def _build(options: HeldOutOptions, context: Any) -> HeldOutEvaluator:
    domains = options.domains or tuple(reference.name for reference in context.config.tool_sims)
    return HeldOutEvaluator(
        held_out_instances(domains, options), reserved_instances=reserved_instances(options),
        repeats=options.repeats, hinted_repeats=options.hinted_repeats,
        group_of=lambda program: str(program.origin["domain"]), kept=reserved_reason,
    )  # fmt: skip


@hookimpl
def evaluator() -> list[Factory[Evaluator]]:
    """The hook ``evaluator``."""
    return [Factory("heldout", _build, HeldOutOptions, "success on reserved chains: sampled, greedy, hinted; with intervals")]
