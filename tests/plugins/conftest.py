"""Puts ``tests/helpers`` within reach."""

import sys
from pathlib import Path

HELPERS = str(Path(__file__).parents[1] / "helpers")
if HELPERS not in sys.path:
    sys.path.insert(0, HELPERS)
