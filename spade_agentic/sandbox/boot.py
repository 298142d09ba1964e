"""Entry point of every process of the sandbox: ``python -s -S -P -B boot.py ROLE LABEL FD LAYOUT``.

It runs without ``site``: what may be imported is the standard library and what LAYOUT names, a JSON object with ``path``
(folders) and ``packages`` (top-level module or package to its file or folder, for those that lie elsewhere). LABEL names
the owner; it stands in the process's arguments so that a reaper can find it. FD is the control socket.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import socket
import sys
from collections.abc import Sequence
from types import ModuleType


class PackageFinder(importlib.abc.MetaPathFinder):
    """Finds top-level packages and modules by an explicit table."""

    def __init__(self, locations: dict[str, str]) -> None:
        self.locations = locations

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        place = self.locations.get(fullname)
        if place is None:
            return None
        if place.endswith(".py"):
            return importlib.util.spec_from_file_location(fullname, place)
        file = f"{place}/__init__.py"
        return importlib.util.spec_from_file_location(fullname, file, submodule_search_locations=[place])


def main() -> None:
    role, label, fd, layout = sys.argv[1:5]
    assert label.startswith("spade-sandbox:"), label
    table = json.loads(layout)
    sys.path[:] = [entry for entry in sys.path if os.path.isdir(entry)] + table["path"]
    sys.meta_path.insert(0, PackageFinder(table["packages"]))
    sys.modules["spade_agentic.sandbox.boot"] = sys.modules["__main__"]  # the roles shall see the finder that is in use
    control = socket.socket(fileno=int(fd))
    module = importlib.import_module(f"spade_agentic.sandbox.{role}")
    module.run(control)


if __name__ == "__main__":
    main()
