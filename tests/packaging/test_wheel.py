"""The wheel, installed outside of the repository, is whole: plugins, simulators, configs, templates and the model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "spade_agentic": "spade_agentic", "spade_agentic_plugins": "plugins", "spade_agentic_sims": "tool_sims",
    "spade_agentic_configs": "configs",
}  # fmt: skip
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a build leaves folders behind."""
    source = tmp_path_factory.mktemp("source")
    for folder in FOLDERS.values():
        shutil.copytree(ROOT / folder, source / folder, ignore=IGNORED)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    output = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(output), str(source)]
    # A parent's coverage must not follow into the build's own processes.
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (found,) = output.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the wheel is installed in, and nothing else."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    done = subprocess.run([*command, "--target", str(target), str(wheel)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def run(site: Path, folder: Path, *command: str) -> str:
    """What a command prints in an empty folder with the installed wheel before everything else on the path."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTHON"))}
    environment["PYTHONPATH"] = str(site)
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_file_of_the_packages_is_in_the_wheel_and_nothing_else(wheel: Path) -> None:
    expected = {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}"
        for package, folder in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert sorted(expected - names) == []
    assert sorted(names - expected) == []


def test_the_wheel_has_the_model_and_it_is_small(wheel: Path) -> None:
    sizes = {
        info.filename.rpartition("/")[2]: info.file_size
        for info in zipfile.ZipFile(wheel).infolist()
        if "bootstrap/spade_tiny/" in info.filename
    }
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(sizes)
    assert sizes["model.safetensors"] < 12 * 2**20


def test_the_installed_packages_are_those_of_the_wheel(site: Path, tmp_path: Path) -> None:
    script = (
        "import importlib, json\n"
        f"names = {sorted(FOLDERS)}\n"
        "print(json.dumps([importlib.import_module(name).__file__ for name in names]))"
    )
    files = json.loads(run(site, tmp_path, "-c", script))
    assert all(Path(file).is_relative_to(site) for file in files)


def test_every_plugin_simulator_and_config_is_found_outside_the_repository(site: Path, tmp_path: Path) -> None:
    listed = json.loads(run(site, tmp_path, "-m", "spade_agentic.cli.main", "plugin", "list", "--json"))
    assert listed["broken"] == []
    plugins = {plugin["name"] for plugin in listed["plugins"]}
    entries = json.loads(run(site, tmp_path, "-c", _ENTRY_POINTS))
    assert plugins == set(entries)
    assert len(plugins) >= 14
    sims = json.loads(run(site, tmp_path, "-m", "spade_agentic.cli.main", "env", "list", "--json"))
    assert {"banking", "support"} <= {sim["name"] for sim in sims}
    shown = json.loads(run(site, tmp_path, "-m", "spade_agentic.cli.main", "config", "show", "tooluse.yaml", "--json"))
    assert shown["model"]["path"] == "spade-tiny"


_ENTRY_POINTS = (
    "import importlib.metadata, json\n"
    "print(json.dumps([e.name for e in importlib.metadata.entry_points(group='spade_agentic')]))"
)


def test_the_default_run_can_be_planned_outside_the_repository(site: Path, tmp_path: Path) -> None:
    plan = json.loads(run(site, tmp_path, "-m", "spade_agentic.cli.main", "train", "tooluse.yaml", "--dry-run", "--json"))
    assert Path(plan["model_dir"]).is_relative_to(site)
    assert list(tmp_path.iterdir()) == []


def test_plugin_new_works_outside_the_repository(site: Path, tmp_path: Path) -> None:
    run(site, tmp_path, "-m", "spade_agentic.cli.main", "plugin", "new", "tracker", "my_wheel_tracker")
    out = run(site, tmp_path, "-m", "spade_agentic.cli.main", "plugin", "check", "my_wheel_tracker")
    assert "FAIL" not in out


def test_the_command_is_installed(site: Path) -> None:
    assert (site / "bin" / "spade-agentic").is_file()


def test_the_metadata_names_licence_python_and_extras(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    lines = archive.read(name).decode().splitlines()
    assert "Requires-Python: >=3.11" in lines
    assert "License-Expression: Apache-2.0" in lines
    assert {"megatron", "cluster", "docker", "eval", "dev"} <= {
        line.removeprefix("Provides-Extra: ") for line in lines if line.startswith("Provides-Extra: ")
    }
    assert any(name.endswith("LICENSE") for name in archive.namelist())
