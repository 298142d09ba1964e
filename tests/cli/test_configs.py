"""``config show|schema|validate``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spade_agentic.config.load import config_from_text, load_config
from spade_agentic.config.schema import RunConfig

Cli = Callable[..., Any]


def test_what_show_prints_is_the_same_run(cli: Cli) -> None:
    shown = cli("config", "show", "tooluse.yaml", "--set", "run.steps=3").out
    assert config_from_text(shown) == load_config("tooluse.yaml", ["run.steps=3"])


def test_show_prints_the_run_as_json(cli: Cli) -> None:
    assert RunConfig.model_validate(cli("config", "show", "--json").json()) == load_config("tooluse.yaml")


def test_schema_is_json_for_an_editor(cli: Cli, tmp_path: Path) -> None:
    assert cli("config", "schema").json()["title"] == "RunConfig"
    assert cli("config", "schema", "--output", tmp_path / "schema.json").out == ""
    assert json.loads((tmp_path / "schema.json").read_text())["title"] == "RunConfig"


def test_schema_can_be_the_reference_page(cli: Cli) -> None:
    page = cli("config", "schema", "--markdown").out
    assert page.startswith("# Configuration")
    assert "`selfplay.regenerate_every`" in page


def test_validate_counts_the_plugins(cli: Cli, tiny_model_dir: Path) -> None:
    result = cli("config", "validate", "tooluse.yaml", "--set", f"model.path={tiny_model_dir}", "--json")
    assert result.code == 0, result.err
    assert result.json()["valid"]
    assert {"engine", "learner", "sandbox", "selfplay.designer"} <= {part["path"] for part in result.json()["plugins"]}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learner.options.lrr=1", "did you mean 'lr'"),
        ("engine=embeded", "did you mean 'embedded'"),
        ("model.path=/nowhere", "there is no model"),
    ],
)
def test_validate_refuses_what_cannot_run(cli: Cli, tiny_model_dir: Path, override: str, message: str) -> None:
    result = cli("config", "validate", "tooluse.yaml", "--set", f"model.path={tiny_model_dir}", "--set", override)
    assert result.code == 2
    assert message in result.err
    assert f"--set {override}" in result.err or "model.path" in result.err
