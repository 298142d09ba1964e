"""Where a sandboxed interpreter finds the few modules that programs may import."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spade_agentic.errors import SandboxError

__all__ = ["BASE_PACKAGES", "find_packages", "interpreter_folders"]

BASE_PACKAGES = (
    "spade_agentic", "spade_agentic_sims", "pluggy", "pydantic", "pydantic_core", "annotated_types", "typing_extensions",
    "typing_inspection",
)
"""Top-level modules that the environment contract and the simulators (plugins, so they import pluggy) need."""


def find_packages(names: Iterable[str]) -> dict[str, str]:
    """The file or folder of every top-level module. Raises :class:`SandboxError` where one is not installed."""
    return {name: _place(name) for name in dict.fromkeys(names)}


def _place(name: str) -> str:
    spec: Any = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations:
        return str(Path(next(iter(spec.submodule_search_locations))).resolve())
    if spec is not None and spec.origin and spec.origin.endswith(".py"):
        return str(Path(spec.origin).resolve())
    raise SandboxError(f"programs shall be able to import {name!r}, but it is not an installed Python module or package")


def interpreter_folders() -> list[str]:
    """The folders that the interpreter itself lives in, for a file system that has nothing else."""
    places = [sys.base_prefix, sys.base_exec_prefix, str(Path(sys.executable).resolve().parent), *filter(None, sys.path)]
    folders = [str(Path(place).resolve()) for place in places if Path(place).is_dir() and "python" in place.lower()]
    return sorted(set(folders) | {str(Path(sys.base_prefix).resolve())})
