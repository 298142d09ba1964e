"""Banking, a tool simulator."""

from . import goals as _goals  # registers the kinds of goal
from .env import Banking

__all__ = ["Banking"]
assert _goals.__name__
