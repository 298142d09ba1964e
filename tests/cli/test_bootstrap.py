"""``bootstrap``: calls the builder and prints its report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
    from spade_agentic.bootstrap import cli as builder

    calls: list[tuple[Path, int]] = []

    def run_bootstrap(output: Path, *, seed: int) -> str:
        calls.append((output, seed))
        return "plain 0.30, hinted 0.70"

    monkeypatch.setattr(builder, "run_bootstrap", run_bootstrap)
    return calls


def test_the_report_is_printed(cli: Cli, built: list[tuple[Path, int]], tmp_path: Path) -> None:
    result = cli("bootstrap", "--output", tmp_path / "model", "--seed", "3")
    assert result.code == 0, result.err
    assert result.out == "plain 0.30, hinted 0.70\n"
    assert built == [(tmp_path / "model", 3)]
    assert cli("bootstrap", "--output", tmp_path / "other", "--json").json()["report"] == "plain 0.30, hinted 0.70"


def test_a_model_is_not_written_over_another(cli: Cli, built: list[tuple[Path, int]], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for output in (tmp_path, tmp_path / "config.json"):
        result = cli("bootstrap", "--output", output)
        assert result.code == 2
        assert "--output" in result.err or "empty" in result.err
    assert built == []
