"""The environments that are played now, one per slot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spade_agentic.hooks.records import Environment
from spade_agentic.runs.codec import from_json, to_json

__all__ = ["Pool"]


class Pool:
    """Changes only by :meth:`swap`, in one assignment, when the successor of a round is complete."""

    def __init__(self, slots: int) -> None:
        assert slots >= 1
        self.slots = slots
        self._by_slot: dict[int, Environment] = {}

    @property
    def environments(self) -> list[Environment]:
        return [environment for _, environment in sorted(self._by_slot.items())]

    def swap(self, fresh: Mapping[int, Environment]) -> list[Environment]:
        """Replace every slot that ``fresh`` fills; returns the environments that stay because their slot was not filled."""
        assert all(0 <= slot < self.slots and slot == e.slot for slot, e in fresh.items())
        kept = [environment for slot, environment in sorted(self._by_slot.items()) if slot not in fresh]
        self._by_slot = {**self._by_slot, **fresh}
        return kept

    def state_dict(self) -> dict[str, Any]:
        return {"environments": to_json(self.environments)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        environments = [from_json(Environment, e) for e in state["environments"]]
        self._by_slot = {e.slot: e for e in environments}
