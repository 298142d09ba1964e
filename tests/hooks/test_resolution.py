"""A whole run resolved, and what it will cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from spade_agentic import ConfigError, PluginManager, RunConfig
from spade_agentic.config.load import config_from_text, load_config
from spade_agentic.hooks.resolution import references, resolve_run, run_cost


def resolved_text(manager: PluginManager, model: Path, text: str) -> RunConfig:
    config = config_from_text(text, name="run.yaml", overrides=[f"model.path={model}"])
    return resolve_run(config, manager).config


def test_every_plugin_of_the_default_run_is_resolved(manager: PluginManager, tiny_model_dir: Path) -> None:
    config = load_config("tooluse.yaml", [f"model.path={tiny_model_dir}"])
    resolved = resolve_run(config, manager)
    assert [part.path for part in resolved.parts] == [path for _, path, _ in references(config)]
    assert resolved.model_dir == tiny_model_dir.resolve()
    assert all(part.summary()["plugin"] in manager.plugins for part in resolved.parts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("engine: embeded", "did you mean 'embedded'"),
        ("learner: {name: torch, options: {learning_rate: 1}}", "learner.options has no key 'learning_rate'"),
        ("trackers: [jsonl, tensorbord]", "did you mean 'tensorboard'"),
        ("model: {renderer: qwen4}", "no renderer called 'qwen4'"),
        ("model: {renderer: {name: qwen3, options: {enable_thinkin: true}}}", "enable_thinking"),
        ("evaluation: {name: helldout}", "did you mean 'heldout'"),
    ],
)
def test_a_wrong_plugin_or_option_anywhere_is_refused_with_its_line(
    manager: PluginManager, tiny_model_dir: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved_text(manager, tiny_model_dir, text)
    assert message in str(caught.value)
    assert "run.yaml:1" in str(caught.value)


def test_a_missing_model_is_refused(manager: PluginManager) -> None:
    config = config_from_text("model: {path: /nowhere/at/all}")
    with pytest.raises(ConfigError, match="there is no model"):
        resolve_run(config, manager)


def test_the_cost_counts_plays_drafts_and_evaluations() -> None:
    config = config_from_text(
        "run: {steps: 10}\n"
        "selfplay: {environments: 3, seeds: 4, repeats: 2, regenerate_every: 4, attempts: 5}\n"
        "evaluation: {name: heldout, every: 3}\n"
    )
    cost = run_cost(config)
    assert cost.rounds == 3  # steps 0, 4 and 8
    assert cost.plain_plays == 10 * 3 * 4 * 2
    assert cost.hinted_plays == 3 * 3 * 4 * 2
    assert cost.plays == cost.plain_plays + cost.hinted_plays
    assert (cost.drafts_min, cost.drafts_max, cost.hints) == (9, 45, 9)
    assert cost.evaluations == 2 + 3  # before, after, and at 3, 6 and 9
    assert cost.tokens_estimate < cost.tokens_max


def test_hinted_plays_in_every_step_cost_as_much_as_plain_ones() -> None:
    cost = run_cost(config_from_text("selfplay: {hinted: every_step}"))
    assert cost.hinted_plays == cost.plain_plays
