"""Smart home, a tool simulator."""

from __future__ import annotations

from spade_agentic import Factory, ToolSim, hookimpl

from ..simulator import simulator_factory
from . import goals as _goals  # registers the kinds of goal
from .env import SmartHome

__all__ = ["SmartHome", "tool_sim"]
assert _goals.__name__


@hookimpl
def tool_sim() -> list[Factory[ToolSim]]:
    return [simulator_factory("smart_home", __name__, "homes with lamps, doors, heaters, batteries and routines")]
