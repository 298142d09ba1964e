"""From where a sandbox imports: folders of installed modules, and packages that lie elsewhere (editable installs)."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass

from spade_agentic.errors import SandboxError

__all__ = ["Layout"]

_OURS = ("spade_agentic", "spade_agentic_plugins", "spade_agentic_sims")


@dataclass(frozen=True, slots=True)
class Layout:
    """``path``: folders with installed modules. ``packages``: top-level module to its folder, or its file."""

    path: tuple[str, ...]
    packages: dict[str, str]

    @classmethod
    def here(cls, more: Iterable[str] = ()) -> Layout:
        """The layout of this interpreter, with the top-level modules ``more`` added."""
        installed = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        installed += [entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")]
        path = tuple(entry for entry in dict.fromkeys(map(os.path.realpath, installed)) if os.path.isdir(entry))
        packages: dict[str, str] = {}
        for name in dict.fromkeys((*_OURS, *more)):
            place = _place(name)
            if place is None and name not in _OURS[1:]:
                raise SandboxError(f"programs may import {name}, but there is no such module")
            if place is not None and os.path.dirname(place) not in path:
                packages[name] = place
        return cls(path, packages)

    def text(self) -> str:
        return json.dumps({"path": self.path, "packages": self.packages})


def _place(name: str) -> str | None:
    """Where a top-level module is: its folder, or its file."""
    loaded = sys.modules.get(name)
    spec = loaded.__spec__ if loaded is not None else importlib.util.find_spec(name)
    if spec is None:
        return os.path.realpath(loaded.__file__) if loaded is not None and loaded.__file__ else None
    if spec.submodule_search_locations:
        return os.path.realpath(next(iter(spec.submodule_search_locations)))
    return os.path.realpath(spec.origin) if spec.origin and spec.has_location else None
