"""The curriculum of the paper: the skills take turns, a few of them active in each round.

Round ``r`` activates the next ``active`` skills; slot ``i`` takes the active skill ``i mod active``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from spade_agentic import Curriculum, EnvironmentHistory, Factory, Options, Skill, hookimpl

__all__ = ["RoundRobin", "RoundRobinOptions", "curriculum"]


class RoundRobinOptions(Options):
    skills: tuple[Skill, ...] = Field(default=tuple(Skill), min_length=1, description="The skills that take turns.")
    active: int = Field(default=3, ge=1, description="Skills active in one round.")

    @field_validator("skills")
    @classmethod
    def _each_once(cls, skills: tuple[Skill, ...]) -> tuple[Skill, ...]:
        if len(set(skills)) != len(skills):
            raise ValueError("a skill is named twice")
        return skills


class RoundRobin:
    """A function of the round's number alone: it has no state."""

    def __init__(self, options: RoundRobinOptions) -> None:
        self._skills = options.skills
        self._active = min(options.active, len(options.skills))

    def skills(self, round_index: int, slots: int) -> list[Skill]:
        first = round_index * self._active
        active = [self._skills[(first + i) % len(self._skills)] for i in range(self._active)]
        return [active[slot % self._active] for slot in range(slots)]

    def observe(self, histories: Sequence[EnvironmentHistory]) -> None:
        """Nothing that happens changes whose turn it is."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert not state, f"round_robin has no state, but was given {sorted(state)}"


@hookimpl
def curriculum() -> list[Factory[Curriculum]]:
    return [
        Factory("round_robin", lambda options, _: RoundRobin(options), RoundRobinOptions, "six skills, three active per round")
    ]
