"""What the loop itself remembers between two steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["RECENT_PROGRAMS", "LoopState"]

RECENT_PROGRAMS = 200
"""How many admitted programs count as known: a draft that repeats one of them is a duplicate. As many as the memory holds."""


@dataclass(slots=True)
class LoopState:
    """``version`` counts the updates made; ``interval_start`` is the step in which the running round opened; ``rounds`` counts
    the rounds opened; ``recent_programs`` are canonical hashes, oldest first."""

    version: int = 0
    interval_start: int = 0
    rounds: int = 0
    recent_programs: list[str] = field(default_factory=list)

    def remember(self, hashes: Iterable[str]) -> None:
        """Add admitted programs; the oldest beyond :data:`RECENT_PROGRAMS` are forgotten."""
        self.recent_programs = [*self.recent_programs, *hashes][-RECENT_PROGRAMS:]

    def state_dict(self) -> dict[str, Any]:
        return {
            "version": self.version, "interval_start": self.interval_start, "rounds": self.rounds,
            "recent_programs": list(self.recent_programs),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.version = int(state["version"])
        self.interval_start = int(state["interval_start"])
        self.rounds = int(state["rounds"])
        self.recent_programs = [str(name) for name in state["recent_programs"]]
