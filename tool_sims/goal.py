"""What a goal of a tool simulator is made of: calls, steps with their plausible wrong alternatives, and the kind of goal."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spade_agentic import Skill, ToolCall

__all__ = ["ANSWER", "GIVE_UP", "Alternative", "Drawn", "Goal", "GoalKind", "Step", "call", "slips"]

ANSWER = "done"
"""The answer that ends a play."""


def call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A plausible wrong next action, and how an agent that took it would go on.

    ``then``: ``"again"`` - nothing was settled, the same step is still to be taken; ``"on"`` - it goes on with the next step
    of the solution as if this had been right; a tuple of steps - it takes these instead of the rest of the goal.
    """

    action: ToolCall | str
    then: Literal["again", "on"] | tuple[Step, ...] = "on"


GIVE_UP = Alternative(ANSWER)
"""Answering as if all were done."""


def slips(*calls: ToolCall) -> tuple[Alternative, ...]:
    """Calls after which a careless agent goes on as if they had been right."""
    return tuple(Alternative(item) for item in calls)


@dataclass(frozen=True, slots=True)
class Step:
    """One action of the reference solution. ``decision`` names the kind of decision taken here; ``None``: mechanics only."""

    call: ToolCall | str
    decision: str | None = None
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a goal function returns: slots of the phrasing, the criterion (reading ``env.state`` when called), the solution."""

    slots: Mapping[str, object]
    done: Callable[[], bool]
    steps: Sequence[Step]


@dataclass(frozen=True, slots=True)
class Goal:
    """One concrete goal of an instance."""

    kind: GoalKind
    text: str
    done: Callable[[], bool]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class GoalKind:
    """A kind of goal. ``calls``: most calls of its solution when ids are given. ``hint``: the procedure, without values.

    ``phrasings`` are format strings over the drawn slots; ``vague`` replaces one slot where the world hides it
    (``hide: secret``). ``tools`` are all tools that must be exposed for the goal to make sense, near-synonyms included.
    """

    name: str
    skills: frozenset[Skill]
    tools: tuple[str, ...]
    phrasings: tuple[str, ...]
    hint: str
    calls: int
    vague: tuple[str, str]
    draw_values: Callable[[Any, random.Random], Drawn]

    def draw(self, env: Any, rng: random.Random, *, hide_secret: bool) -> Goal:
        """One goal of this kind in the world ``env``, which claims the records that it is about."""
        drawn = self.draw_values(env, rng)
        slots = dict(drawn.slots)
        if hide_secret:
            slots[self.vague[0]] = self.vague[1]
        text = rng.choice(self.phrasings).format(**slots)
        return Goal(self, text[0].upper() + text[1:], drawn.done, tuple(drawn.steps))
