"""Fixtures that several parts share."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog

from spade_agentic.cli import main as cli_main, output
from spade_agentic.hooks.manager import PluginManager
from spade_agentic.testing import tiny_model


@dataclass(frozen=True)
class CliResult:
    """What one command of the command line did."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., CliResult]]:
    """Runs ``spade-agentic ARGUMENTS`` in this process."""
    monkeypatch.setattr(output, "_state", {"debug": False})
    logs = structlog.get_config()

    def run(*arguments: object) -> CliResult:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            cli_main.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return CliResult(int(exit_.value.code or 0), captured.out, captured.err)

    yield run
    structlog.configure(**logs)


@pytest.fixture(scope="session")
def manager() -> PluginManager:
    """Every installed plugin. Shared: do not register anything on it."""
    return PluginManager.load()


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Qwen3. Shared: do not write to it."""
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def plugin_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a plugin's source to a file of its own and returns the path."""

    def write(source: str, name: str = "my_plugin") -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        return path

    return write
