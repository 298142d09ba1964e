"""The demonstrator that ``spade-tiny`` imitates: sure in its mechanics, open in its decisions, obedient to a hint.

It knows the reference script of an instance, so formats, values and order of arguments are always right. Wherever the
script marks a *decision*, it takes the right action only with the probability that :data:`RIGHT` gives to this kind of
decision, and otherwise one of the plausible wrong ones. With a hint it decides right almost always. What is left to learn
is therefore decisions, and a hint is worth following: hint-regret is positive exactly where there is something to learn.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spade_agentic_sims.kit import ANSWER, Chain, SimEnv, Step

from spade_agentic.envs.contract import ToolCall

__all__ = ["HINTED_RIGHT", "RIGHT", "Demonstration", "Exchange", "demonstrate"]

HINTED_RIGHT = 0.97
"""How often the demonstrator follows a hint at a decision."""

DEFAULT_RIGHT = 0.6
RIGHT: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Exchange:
    """One action of the demonstrator and what the environment answered (empty at the end)."""

    action: ToolCall | str
    observation: str


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One demonstrated play. ``decisions`` lists (kind, taken right) in order."""

    chain: Chain
    seed: int
    hint: str | None
    tools: Sequence[Mapping[str, Any]]
    system: str
    first_observation: str
    exchanges: tuple[Exchange, ...]
    won: bool
    decisions: tuple[tuple[str, bool], ...]


def _chunks(env: SimEnv) -> list[list[Step]]:
    """The script, cut where the next instruction is revealed; the answer is a chunk of its own."""
    script = env.script()
    chunks: list[list[Step]] = []
    for goal in env.goals:
        chunks.append(script[: len(goal.steps)])
        script = script[len(goal.steps) :]
    return [*chunks, script]


def demonstrate(
    chain: Chain, seed: int, rng: random.Random, *, hint: str | None = None, greedy: bool = False,
    right: Mapping[str, float] = RIGHT,
) -> Demonstration:
    """Play one instance. ``greedy`` takes the most likely action at each decision instead of drawing one."""
    env = chain.env()
    first, _ = env.reset(seed=seed)
    chunks = _chunks(env)
    exchanges: list[Exchange] = []
    decisions: list[tuple[str, bool]] = []
    current, steps, won, over = 0, list(chunks[0]), False, False
    while not over:
        step = steps.pop(0)
        action: ToolCall | str = step.call
        if step.decision is not None and step.alternatives:
            likely = HINTED_RIGHT if hint else right.get(step.decision, DEFAULT_RIGHT)
            taken = likely >= 1 / (1 + len(step.alternatives)) and likely > (1 - likely) / len(step.alternatives) if greedy else rng.random() < likely
            decisions.append((step.decision, taken))
            if not taken:
                alternative = rng.choice(step.alternatives)
                action = alternative.action
                if alternative.then == "again":
                    steps.insert(0, step)
                elif alternative.then != "on":
                    steps = list(alternative.then)
        if isinstance(action, str):
            _, reward, over, _, _ = env.step({"type": "text", "text": action})
            won = reward > 0
            exchanges.append(Exchange(action, ""))
            break
        observation, _, _, over, info = env.step(action.as_action())
        exchanges.append(Exchange(action, observation))
        if info["current"] > current:
            current = info["current"]
            steps = [*steps, *chunks[current]] if not steps else list(chunks[current])
        elif not steps:
            # the goal's steps are used up and nothing new was asked: it believes that all is done
            steps = [Step(ANSWER)]
    return Demonstration(
        chain, seed, hint, env.tools(), env.system, first, tuple(exchanges), won, tuple(decisions)
    )
