"""Support desk, a tool simulator."""

from . import goals as _goals  # registers the kinds of goal
from .env import Support

__all__ = ["Support"]
assert _goals.__name__
