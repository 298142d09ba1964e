"""``plugin new`` for every kind: the package passes ``plugin check`` and its own tests, unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from spade_agentic import PluginManager, RunConfig
from spade_agentic.config.load import config_from_text
from spade_agentic.hooks.resolution import references
from spade_agentic.hooks.specs import FACTORY_HOOKS
from spade_agentic.testing.checking import check_plugin
from spade_agentic.testing.skeleton import KINDS, write_plugin

PREFIX = "fresh"


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """One written project of every kind. Their modules are forgotten afterwards."""
    root = tmp_path_factory.mktemp("projects")
    made = {}
    for kind in KINDS:
        made[kind] = root / f"project-{kind}"
        write_plugin(kind, f"{PREFIX}_{kind}", made[kind])
    path = list(sys.path)
    yield made
    sys.path[:] = path
    for name in [name for name in sys.modules if name.startswith(f"{PREFIX}_")]:
        del sys.modules[name]


def test_there_is_a_skeleton_for_every_kind() -> None:
    assert set(KINDS) == set(FACTORY_HOOKS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_passes_the_contract_of_its_kind(projects: dict[str, Path], kind: str) -> None:
    manager = PluginManager.load([projects[kind]])
    results = check_plugin(manager, f"{PREFIX}_{kind}")
    assert len(results) > 2
    assert [f"{r.rule}: {r.detail}" for r in results if not r.passed] == []


def test_new_plugins_pass_their_own_tests(projects: dict[str, Path]) -> None:
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder / "src") for folder in projects.values())}
    tests = [str(folder / "tests") for folder in projects.values()]
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-p", "no:asyncio", "-p", "no:cacheprovider"]
    root = str(next(iter(projects.values())).parent)
    done = subprocess.run(
        [*command, "-W", "error", "-c", os.devnull, "--rootdir", root, *tests],
        env=found, cwd=root, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert int(done.stdout.split(" passed")[0].split()[-1]) >= 2 * len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_usage_in_the_readme_names_the_plugin_in_a_run(projects: dict[str, Path], kind: str) -> None:
    readme = (projects[kind] / "README.md").read_text()
    usage = readme.split("```yaml\n")[1].split("```")[0]
    config: RunConfig = config_from_text(usage)
    assert (kind, f"{PREFIX}_{kind}") in {(hook, ref.name) for hook, _, ref in references(config)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_project_registers_its_module(projects: dict[str, Path], kind: str) -> None:
    project = tomllib.loads((projects[kind] / "pyproject.toml").read_text())["project"]
    name = f"{PREFIX}_{kind}"
    assert project["entry-points"]["spade_agentic"] == {name: name}
    assert project["name"] == f"spade-agentic-fresh-{kind.replace('_', '-')}"
    assert "$" not in (projects[kind] / "src" / name / "__init__.py").read_text().replace(r"]+$", "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_is_clean(projects: dict[str, Path], kind: str) -> None:
    rules = "E,F,W,I,B,UP,SIM,C4,PT,RET,PIE"
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length", "128", "--select", rules, "."]
    done = subprocess.run(command, cwd=projects[kind], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
