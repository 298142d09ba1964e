"""Designer samples that wait for their reward.

A sample is due when its age reaches the delay, whatever the regeneration interval is, so any delay trains. What still
waits at the end of the run is flushed into the last batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spade_agentic.hooks.records import Draft
from spade_agentic.runs.codec import from_json, to_json

__all__ = ["DelayBuffer", "WaitingDraft"]


@dataclass(frozen=True, slots=True)
class WaitingDraft:
    """A draft of the round that opened at ``step``. ``env_id`` names the environment that it became, if it was admitted.

    ``reward`` is ``None`` until its interval is over; ``settled`` says that it is (``None`` then means: no signal).
    """

    draft: Draft
    step: int
    env_id: str | None = None
    reward: float | None = None
    settled: bool = False


class DelayBuffer:
    """First in, first out, in the order in which drafts were added."""

    def __init__(self, delay: int) -> None:
        assert delay >= 0
        self.delay = delay
        self._waiting: list[WaitingDraft] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, drafts: Iterable[WaitingDraft]) -> None:
        self._waiting.extend(drafts)

    def settle(self, rewards: Mapping[str, float | None]) -> None:
        """The interval of these environments is over, and this is what they earned."""
        self._waiting = [
            replace(w, reward=rewards[w.env_id], settled=True)
            if w.env_id is not None and w.env_id in rewards and not w.settled
            else w
            for w in self._waiting
        ]

    def unsettled(self, step: int, *, flush: bool = False) -> list[str]:
        """Environments whose drafts are due now although their interval still runs."""
        return [w.env_id for w in self._waiting if w.env_id is not None and not w.settled and self._due(w, step, flush)]

    def take(self, step: int, *, flush: bool = False) -> list[WaitingDraft]:
        """Remove and return what is due at ``step``; everything with ``flush``."""
        due = [w for w in self._waiting if self._due(w, step, flush)]
        self._waiting = [w for w in self._waiting if not self._due(w, step, flush)]
        return due

    def _due(self, waiting: WaitingDraft, step: int, flush: bool) -> bool:
        return flush or step - waiting.step >= self.delay

    def state_dict(self) -> dict[str, Any]:
        return {"waiting": to_json(self._waiting)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._waiting = [from_json(WaitingDraft, w) for w in state["waiting"]]
