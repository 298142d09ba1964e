"""From where a sandbox imports: an explicit table of top-level modules, so that torch and the rest are out of reach."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from spade_agentic.errors import SandboxError

__all__ = ["BASE_PACKAGES", "Layout"]

BASE_PACKAGES = (
    "spade_agentic", "spade_agentic_sims", "pluggy", "pydantic", "pydantic_core", "annotated_types", "typing_extensions",
    "typing_inspection",
)
"""Top-level modules that the environment contract and the simulators (plugins, so they import pluggy) need."""


@dataclass(frozen=True, slots=True)
class Layout:
    """``path``: folders with modules, beside the standard library. ``packages``: top-level module to its folder or file."""

    path: tuple[str, ...]
    packages: dict[str, str]

    @classmethod
    def here(cls, more: Iterable[str] = ()) -> Layout:
        """The layout of this interpreter, with the top-level modules ``more`` added.

        Raises :class:`SandboxError` where one of them is not installed.
        """
        return cls((), {name: _place(name) for name in dict.fromkeys((*BASE_PACKAGES, *more))})

    def text(self) -> str:
        return json.dumps({"path": self.path, "packages": self.packages})


def _place(name: str) -> str:
    """Where a top-level module is: its folder, or its file."""
    loaded = sys.modules.get(name)
    spec = loaded.__spec__ if loaded is not None else importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations:
        return os.path.realpath(next(iter(spec.submodule_search_locations)))
    origin = spec.origin if spec is not None else getattr(loaded, "__file__", None)
    if origin and origin.endswith(".py"):
        return os.path.realpath(origin)
    raise SandboxError(f"programs shall be able to import {name!r}, but no such Python module or package is installed")
