"""The house rules about imports, read from the source: one way down, no circles, nothing heavy at the door."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {"spade_agentic": "spade_agentic", "spade_agentic_plugins": "plugins", "spade_agentic_sims": "tool_sims"}

LAYERS = {
    "errors": 0, "hooks": 0, "config": 0, "envs": 1, "sandbox": 2, "inference": 2, "rollout": 3, "learning": 3, "evals": 3,
    "runs": 4, "selfplay": 5, "bootstrap": 5, "bench": 5, "testing": 6, "cli": 7,
}  # fmt: skip
"""Nothing imports from a higher layer, nor from a neighbour, except within the lowest one."""

NEVER_AT_MODULE_LEVEL = {"sglang", "megatron", "docker", "ray", "peft"}


@dataclass(frozen=True)
class Import:
    """One import statement. ``lazy``: inside a function; ``typing``: only for type checkers."""

    importer: str
    module: str
    names: tuple[str, ...]
    lazy: bool
    typing: bool
    line: int


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = path
    return found


MODULES = modules()


def imports_of(name: str) -> list[Import]:
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return list(_walk(ast.parse(path.read_text(encoding="utf-8")), name, package, lazy=False, typing=False))


def _walk(node: ast.AST, name: str, package: str, *, lazy: bool, typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(name, alias.name, (), lazy, typing, child.lineno)
        elif isinstance(child, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - max(0, child.level - 1)] if child.level else []
            module = ".".join([*base, *([child.module] if child.module else [])])
            yield Import(name, module, tuple(alias.name for alias in child.names), lazy, typing, child.lineno)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            guarded = isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
            yield from _walk(child, name, package, lazy=lazy or inside, typing=typing or guarded)


ALL = [item for name in MODULES for item in imports_of(name)]


def layer_of(module: str) -> int | None:
    parts = module.split(".")
    return LAYERS.get(parts[1]) if parts[0] == "spade_agentic" and len(parts) > 1 else None


def test_every_part_has_a_layer() -> None:
    parts = {name.split(".")[1] for name in MODULES if name.startswith("spade_agentic.")}
    assert parts == set(LAYERS)


def test_nothing_imports_upward_nor_sideways() -> None:
    wrong = []
    for item in ALL:
        ours, theirs = layer_of(item.importer), layer_of(item.module)
        if ours is None or theirs is None or item.typing:
            continue
        same_part = item.importer.split(".")[1] == item.module.split(".")[1]
        if not same_part and (theirs > ours or (theirs == ours and ours > 0)):
            wrong.append(f"{item.importer}:{item.line} imports {item.module}")
    assert wrong == []


def test_the_core_knows_no_plugin_and_no_simulator() -> None:
    """Except the bootstrap, which builds the shipped model out of the shipped simulators."""
    outside = ("spade_agentic_plugins", "spade_agentic_sims")
    wrong = [f"{i.importer}:{i.line}" for i in ALL if i.importer.startswith("spade_agentic.") and i.module.startswith(outside)]
    assert [place for place in wrong if not place.startswith("spade_agentic.bootstrap")] == []


def test_a_plugin_imports_only_public_names() -> None:
    """``from spade_agentic import ...`` and its own modules; simulators' modules and other plugins where it builds on them."""
    import spade_agentic

    wrong = []
    for item in ALL:
        if item.importer.startswith("spade_agentic.") or item.importer == "spade_agentic":
            continue
        if item.module.startswith("spade_agentic."):
            wrong.append(f"{item.importer}:{item.line} imports {item.module}")
        if item.module == "spade_agentic":
            wrong += [f"{item.importer} imports {name}" for name in item.names if name not in spade_agentic.__all__]
        if item.module.startswith("spade_agentic_plugins") and item.importer.startswith("spade_agentic_sims"):
            wrong.append(f"{item.importer}:{item.line} imports {item.module}")
    assert wrong == []


def test_engines_and_containers_are_imported_only_where_they_are_used() -> None:
    assert [f"{i.importer}:{i.line}" for i in ALL if i.module.split(".")[0] in NEVER_AT_MODULE_LEVEL and not i.lazy] == []


def test_there_are_no_circles() -> None:
    """Importing a module runs its packages' ``__init__`` first; its own packages are under way already."""
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for item in ALL:
        if item.lazy or item.typing:
            continue
        targets = {item.module, *(f"{item.module}.{name}" for name in item.names)} & MODULES.keys()
        for target in targets:
            parts = target.split(".")
            loaded = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
            graph[item.importer] |= {n for n in loaded & MODULES.keys() if not f"{item.importer}.".startswith(f"{n}.")}
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("source", ["from .b import c", "if x:\n    def f():\n        import a.b"])
def test_the_reader_of_imports_sees_relative_and_hidden_ones(source: str) -> None:
    found = list(_walk(ast.parse(source), "p.q", "p", lazy=False, typing=False))
    assert [(i.module, i.lazy) for i in found] in ([("p.b", False)], [("a.b", True)])


def test_no_module_is_longer_than_500_lines() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
    assert {name: length for name, length in lengths.items() if length > 500} == {}


def test_the_loop_fits_in_about_200_lines() -> None:
    assert len(MODULES["spade_agentic.selfplay.loop"].read_text(encoding="utf-8").splitlines()) <= 240
