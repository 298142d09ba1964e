"""The tutorials' code is executed: every file is written, every command of a ``console`` block is run, in order."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIALS = [
    "docs/tutorial-designer.md", "docs/tutorial-reward.md", "docs/tutorial-memory.md", "docs/tutorial-tool-simulator.md",
]
DEADLINE_S = 180


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """One line of a ``console`` block, by the shell, with this environment's programs."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    quiet = {"PYTEST_ADDOPTS": "-p no:cacheprovider -p no:cov", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, shell=True, cwd=folder, env=os.environ | {"PATH": path} | quiet, capture_output=True, text=True,
        timeout=DEADLINE_S, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_reader_who_follows_the_tutorial_gets_a_plugin_that_works(name: str, page_named, tmp_path: Path) -> None:
    page = page_named(name)
    for file, text in page.files().items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    commands = page.console()
    assert any("plugin check" in command for command in commands)
    writes_worlds = name in ("docs/tutorial-designer.md", "docs/tutorial-tool-simulator.md")
    assert any("env check" in command for command in commands) == writes_worlds
    printed = ""
    for command in commands:
        done = run(command, tmp_path)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}\n{done.stderr}"
        printed += done.stdout
    for language, body in page.blocks():
        assert language != "text" or body in printed, f"nothing printed this:\n{body}"


@pytest.mark.slow
def test_the_play_shown_in_the_readme_is_what_its_command_prints(page_named, tmp_path: Path) -> None:
    [shown] = [body for language, body in page_named("README.md").blocks() if language == "text"]
    command, _, output = shown.removeprefix("$ ").partition("\n")
    assert run(command, tmp_path).stdout.endswith(output)


@pytest.mark.slow
@pytest.mark.parametrize("name", TUTORIALS)
def test_the_code_of_a_tutorial_is_clean(name: str, page_named, tmp_path: Path) -> None:
    for file, text in page_named(name).files().items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent))
    assert ruff is not None
    done = subprocess.run(
        [ruff, "check", "--no-cache", "--config", str(Path(__file__).parents[2] / "pyproject.toml"), "."],
        cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
