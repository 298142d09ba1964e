"""The public interface is one table; type checkers and readers see the same names as Python does."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import spade_agentic

SOURCE = Path(spade_agentic.__file__).read_text(encoding="utf-8")


def _names_for_type_checkers() -> dict[str, str]:
    block = next(
        node for node in ast.parse(SOURCE).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )  # fmt: skip
    return {
        alias.asname or alias.name: node.module or ""
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_type_checkers_see_exactly_the_public_names() -> None:
    assert _names_for_type_checkers() == spade_agentic._EXPORTS


def test_every_public_name_is_there() -> None:
    for name, module in spade_agentic._EXPORTS.items():
        assert getattr(spade_agentic, name) is getattr(importlib.import_module(module), name)


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, spade_agentic; print([m for m in ('torch', 'transformers', 'pydantic', 'aiohttp') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
