"""Retail, a tool simulator."""

from __future__ import annotations

from spade_agentic import Factory, ToolSim, hookimpl

from ..simulator import simulator_factory
from . import goals as _goals  # registers the kinds of goal
from .env import Retail

__all__ = ["Retail", "tool_sim"]
assert _goals.__name__


@hookimpl
def tool_sim() -> list[Factory[ToolSim]]:
    return [simulator_factory("retail", __name__, "a shop: customers with items, purses of points and plans")]
