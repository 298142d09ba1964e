"""The memory that remembers nothing: every draft is written as if it were the run's first.

The control of what a memory is worth. It declares ``capacity = 0``, which is how the contract tests know that it is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spade_agentic import Factory, MemoryEntry, MemoryStore, Skill, hookimpl

__all__ = ["NoMemory", "memory_store"]


class NoMemory:
    """Takes every entry and keeps none, so that no prompt of a designer shows an earlier environment."""

    capacity = 0

    def add(self, entry: MemoryEntry) -> None:
        """Nothing is kept."""

    def update(self, draft_id: str, *, win_rate: float | None, regret: float | None) -> None:
        """Nothing was kept."""

    def sample(self, skill: Skill, *, seed: int) -> tuple[tuple[MemoryEntry, ...], MemoryEntry | None]:
        return (), None

    def __len__(self) -> int:
        return 0

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert not state, f"the memory none has no state, but was given {sorted(state)}"


@hookimpl
def memory_store() -> list[Factory[MemoryStore]]:
    return [Factory("none", lambda options, _: NoMemory(), doc="remembers nothing: the control of what a memory is worth")]
