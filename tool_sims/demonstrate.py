"""Play an instance by its script, taking a wrong turn wherever asked to.

The reference solution knows every step; ``choose`` decides at each of them whether to follow it. What a careless agent
does after a wrong turn is part of the alternative, so that even a losing demonstration only uses what it has seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spade_agentic import ToolCall

from .kit import ANSWER, Alternative, SimEnv, Step

__all__ = ["Demonstration", "Exchange", "demonstrate"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One action, the step it answers, whether it was the right one, and the observation ("" after the answer)."""

    action: ToolCall | str
    step: Step
    right: bool
    observation: str


@dataclass(slots=True)
class Demonstration:
    """A whole play: first observation, exchanges, return."""

    first: str
    exchanges: list[Exchange] = field(default_factory=list)
    reward: float = 0.0

    @property
    def won(self) -> bool:
        return self.reward == 1.0


def demonstrate(env: SimEnv, *, seed: int, choose: Callable[[Step], Alternative | None]) -> Demonstration:
    """Play ``seed`` to its end. ``choose`` returns one of the step's alternatives, or ``None`` for the right action.

    It is asked at every step that has alternatives, and again where one settled nothing. Whoever took a wrong turn and
    therefore sees no further request takes the work for done. The play ends at an answer or at the turn limit.
    """
    first, _ = env.reset(seed=seed)
    played = Demonstration(first)
    owners = [index for index, goal in enumerate(env.goals) for _ in goal.steps]
    queue = list(zip([*owners, len(env.goals)], env.script(), strict=True))
    while queue:
        index, step = queue.pop(0)
        alternative = choose(step) if step.alternatives else None
        action = alternative.action if alternative else step.call
        observation, reward, terminated, truncated, info = env.step(_action(action))
        played.exchanges.append(Exchange(action, step, alternative is None, observation))
        played.reward = reward
        if terminated or truncated:
            break
        if alternative and alternative.then == "again":
            queue.insert(0, (index, step))
        elif alternative and alternative.then != "on":
            queue = [(index, item) for item in (*alternative.then, Step(ANSWER))]
        queue[:0] = [(index, item) for item in env.recovery(action)]
        if queue[0][0] > info["current"]:
            queue = [(index, Step(ANSWER))]
    return played


def _action(action: ToolCall | str) -> dict[str, Any]:
    return {"type": "text", "text": action} if isinstance(action, str) else action.as_action()
