"""The shipped ablations: each takes away what it says and nothing else, and costs as many plays as the reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spade_agentic.config.files import find_config, shipped_configs
from spade_agentic.config.load import load_config
from spade_agentic.hooks.manager import PluginManager
from spade_agentic.hooks.resolution import resolve_run
from spade_agentic.runs.compare import config_differences

TAKES_AWAY: dict[str, set[str]] = {
    "self_play": set(),
    "frozen_designer": {"train_designer"},
    "frozen_without_memory": {"train_designer", "memory"},
    "fixed_pool": {"train_designer", "rounds", "attempts"},
    "no_memory": {"memory"},
    "no_curriculum": {"curriculum"},
    "ema": {"reward"},
    "solve_rate": {"reward"},
    "no_hint": {"hint_writer"},
}


def test_every_shipped_ablation_is_known_here() -> None:
    assert {name for name in shipped_configs() if name.startswith("ablations/")} == {f"ablations/{n}.yaml" for n in TAKES_AWAY}


@pytest.mark.parametrize("name", TAKES_AWAY)
def test_an_ablation_differs_from_self_play_in_what_it_takes_away_alone(name: str) -> None:
    configs = {each: load_config(f"ablations/{each}.yaml").to_data() for each in ("self_play", name)}
    keys = {difference.key for difference in config_differences(configs)} - {"run.name"}
    assert {key.removeprefix("selfplay.").partition(".")[0] for key in keys} == TAKES_AWAY[name]


@pytest.mark.parametrize("name", TAKES_AWAY)
def test_a_dry_run_of_an_ablation_plans_as_many_plays_of_each_arm_as_self_play(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    planned = cli("train", f"ablations/{name}.yaml", "--dry-run", "--json")
    assert planned.code == 0, planned.err
    plan, reference = planned.json(), load_config("ablations/self_play.yaml")
    cost = resolve_run(reference, PluginManager.load()).cost
    assert (plan["cost"]["plain_plays"], plan["cost"]["hinted_plays"]) == (cost.plain_plays, cost.hinted_plays)
    assert cost.plain_plays == plan["config"]["run"]["steps"] * 12 * 4 * 4, "environments x seeds x repeats in every step"
    assert {key: plan["config"]["selfplay"][key] for key in ("environments", "seeds", "repeats")} == {
        "environments": 12, "seeds": 4, "repeats": 4,
    }  # fmt: skip
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", TAKES_AWAY)
def test_an_ablation_says_what_it_takes_away_and_what_it_shows(name: str) -> None:
    takes, shows, extends = find_config(f"ablations/{name}.yaml").text.splitlines()[:3]
    assert extends == "extends: tooluse.yaml"
    assert all(line.startswith("# ") and line.endswith(".") and len(line) > 40 for line in (takes, shows))
