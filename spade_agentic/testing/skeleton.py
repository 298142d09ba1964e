"""What ``plugin new`` writes: a package with an entry point, a working plugin of a kind, its tests and a README."""

from __future__ import annotations

import importlib.resources
import importlib.util
import keyword
import re
from pathlib import Path
from string import Template

from spade_agentic.errors import UserError
from spade_agentic.hooks.manager import HOOK_PATHS

__all__ = ["KINDS", "write_plugin"]

KINDS: dict[str, str] = {
    "env_designer": "It asks the policy for a complete program in Python.",
    "hint_writer": "It asks the policy how a program is solved.",
    "designer_reward": "It pays for a win rate close to a target.",
    "memory_store": "It remembers the newest environments.",
    "curriculum": "It chooses the skills that the agent fails at.",
    "tool_sim": "It simulates a small library that lends books.",
    "sandbox": "It runs programs in the same process, for debugging.",
    "inference_engine": "It computes one completion at a time with transformers.",
    "learner": "It trains by plain REINFORCE.",
    "tracker": "It writes metrics as CSV.",
    "evaluator": "It measures success on one fixed program.",
}
"""What the skeleton of each kind does."""

_LISTS = ("tool_sims", "trackers")


def write_plugin(kind: str, name: str, folder: Path) -> list[Path]:
    """Write a plugin of ``kind`` called ``name`` to ``folder``; returns the files.

    Dashes in the name become underscores: it is the module's name, the entry point's and the YAML's. Raises
    :class:`UserError` for a name that cannot be used, and where ``folder`` holds something already.
    """
    name = _checked(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError("there is something here already", where=str(folder), todo="name another folder with --output")
    values = {
        "kind": kind, "name": name, "dashed": name.replace("_", "-"), "purpose": KINDS[kind], "usage": _usage(kind, name),
        "class_name": "".join(part.capitalize() for part in name.split("_") if part),
    }  # fmt: skip
    files = {
        "pyproject.toml": "common/pyproject.toml", "README.md": "common/README.md", f"src/{name}/py.typed": None,
        f"src/{name}/__init__.py": f"{kind}/module.py", f"tests/test_{name}.py": f"{kind}/test.py",
    }  # fmt: skip
    written = []
    for path, template in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_filled(template, values) if template else "", encoding="utf-8")
        written.append(target)
    return written


def _checked(name: str) -> str:
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", module) or keyword.iskeyword(module):
        todo = "use small letters, digits and underscores (a dash becomes one), such as my_plugin"
        raise UserError(f"{name!r} cannot be a plugin's name", where=name, todo=todo)
    if importlib.util.find_spec(module) is not None:
        raise UserError(f"there is a module called {module!r} already", where=name, todo="choose another name")
    return module


def _filled(template: str, values: dict[str, str]) -> str:
    file = importlib.resources.files(__package__) / "templates" / f"{template}.tmpl"
    return Template(file.read_text(encoding="utf-8")).substitute(values)


def _usage(kind: str, name: str) -> str:
    """How a YAML names the plugin."""
    lines: list[str] = []
    *sections, last = HOOK_PATHS[kind].split(".")
    for depth, section in enumerate(sections):
        lines.append("  " * depth + f"{section}:")
    value = f"[{name}]" if last in _LISTS else name
    return "\n".join([*lines, "  " * len(sections) + f"{last}: {value}"])
