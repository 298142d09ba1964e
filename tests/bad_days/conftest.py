"""Days on which something goes wrong. A test names its row of ``docs/bad-days.md`` and must see what that row promises."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bad_day_page import BadDay, rows
from bad_day_runs import ToyRuns, toy_module
from play_fakes import door_gates

from spade_agentic.selfplay import build


@pytest.fixture
def day(request: pytest.FixtureRequest) -> BadDay:
    """The row that the test's mark ``bad_day`` names."""
    mark = request.node.get_closest_marker("bad_day")
    assert mark is not None, "the test names no row: @pytest.mark.bad_day(...)"
    return rows()[mark.args[0]]


@pytest.fixture
def yaml_file(tmp_path: Path) -> Callable[[str | bytes], Path]:
    """Writes a config and returns its path."""

    def write(content: str | bytes) -> Path:
        path = tmp_path / "my.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def model_copy(tiny_model_dir: Path, tmp_path: Path) -> Path:
    """A model folder that a test may damage."""
    return Path(shutil.copytree(tiny_model_dir, tmp_path / "model"))


@pytest.fixture
def runs(tmp_path: Path, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> ToyRuns:
    """Whole runs of toys, with gates that only look for duplicates."""
    monkeypatch.setattr(build, "_gates", lambda sandbox, reserved: door_gates)
    toy = toy_module()
    toy.LOG.clear()
    toy.FAIL_AT.clear()
    return ToyRuns(tmp_path, cli, toy)
