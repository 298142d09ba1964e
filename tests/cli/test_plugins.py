"""``plugin list|new|check``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]

LEAKY = """
import random
from spade_agentic import Factory, hookimpl

class Dice:
    def reward(self, item):
        return random.random()

@hookimpl
def designer_reward():
    return [Factory("dice", lambda options, context: Dice(), doc="luck")]
"""


def test_list_shows_every_kind_with_its_options(cli: Cli) -> None:
    listed = cli("plugin", "list", "--json").json()
    assert listed["broken"] == []
    by_name = {(f["kind"], f["name"]): f for f in listed["factories"]}
    assert by_name["designer_reward", "hint_regret"]["config"] == "selfplay.reward"
    assert {o["name"] for o in by_name["designer_reward", "hint_regret"]["options"]} == {"fault_penalty", "floor", "prior_sd"}
    assert by_name["tool_sim", "banking"]["third_party"] is False


def test_list_can_be_confined_to_a_kind(cli: Cli) -> None:
    assert {f["kind"] for f in cli("plugin", "list", "--kind", "designer-reward", "--json").json()["factories"]} == {
        "designer_reward"
    }
    result = cli("plugin", "list", "--kind", "designer_rewards")
    assert result.code == 2
    assert "did you mean 'designer_reward'" in result.err


def test_list_shows_a_plugin_that_is_not_installed(cli: Cli, plugin_file: Callable[..., Path]) -> None:
    out = cli("plugin", "list", "--plugin", plugin_file(LEAKY)).out
    assert "dice" in out
    assert "luck" in out


def test_new_writes_a_package_that_check_accepts(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "some_where"
    written = cli("plugin", "new", "curriculum", "my-cli-plugin", "--output", folder, "--json").json()
    assert set(written["files"]) == {
        "pyproject.toml", "README.md", "src/my_cli_plugin/py.typed", "src/my_cli_plugin/__init__.py",
        "tests/test_my_cli_plugin.py",
    }  # fmt: skip
    checked = cli("plugin", "check", folder, "--json")
    assert checked.code == 0
    assert checked.json()["passed"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["curiculum", "mine"], "did you mean 'curriculum'"),
        (["curriculum", "Mine!"], "cannot be a plugin's name"),
        (["curriculum", "class"], "cannot be a plugin's name"),
        (["curriculum", "json"], "there is a module called 'json' already"),
    ],
)
def test_new_refuses_what_could_not_work(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli("plugin", "new", *arguments)
    assert result.code == 2
    assert message in result.err
    assert list(tmp_path.iterdir()) == []


def test_new_writes_over_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep me")
    result = cli("plugin", "new", "tracker", "mine", "--output", tmp_path)
    assert result.code == 2
    assert (tmp_path / "mine").read_text() == "keep me"


def test_check_names_the_rule_that_does_not_hold_and_exits_with_2(cli: Cli, plugin_file: Callable[..., Path]) -> None:
    path = plugin_file(LEAKY)
    result = cli("plugin", "check", path)
    assert result.code == 2
    assert "FAIL designer_reward dice: Asking twice changes nothing" in result.out
    report = cli("plugin", "check", path, "--json").json()
    assert not report["passed"]
    broken = [rule["rule"] for rule in report["rules"] if not rule["passed"]]
    assert any(rule.startswith("Asking twice changes nothing") for rule in broken)


def test_check_builds_with_the_options_that_are_given(cli: Cli) -> None:
    good = cli("plugin", "check", "rewards", "--set", "hint_regret.floor=true", "--json")
    assert good.json()["passed"]
    bad = cli("plugin", "check", "rewards", "--set", "hint_regret.floor=perhaps")
    assert bad.code == 2
    assert "floor" in bad.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rewrads"], "did you mean 'rewards'"),
        (["./nowhere.py"], "there is no such plugin file"),
        (["rewards", "--set", "regret.floor=true"], "has no factory 'regret'"),
        (["rewards", "--set", "floor"], "must look like FACTORY.key=value"),
    ],
)
def test_check_refuses_what_is_not_there(cli: Cli, arguments: list[str], message: str) -> None:
    result = cli("plugin", "check", *arguments)
    assert result.code == 2
    assert message in result.err
