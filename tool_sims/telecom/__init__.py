"""Telecom, a tool simulator."""

from __future__ import annotations

from spade_agentic import Factory, ToolSim, hookimpl

from ..simulator import simulator_factory
from . import goals as _goals  # registers the kinds of goal
from .env import Telecom

__all__ = ["Telecom", "tool_sim"]
assert _goals.__name__


@hookimpl
def tool_sim() -> list[Factory[ToolSim]]:
    return [simulator_factory("telecom", __name__, "a phone company: customers with lines, packs, bills and gear")]
