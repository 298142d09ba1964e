"""``--set a.b=c``: in the dialect of the YAML, strict, and named in every later error."""

from __future__ import annotations

from pathlib import Path

import pytest

from spade_agentic import ConfigError
from spade_agentic.config.load import config_from_text, load_config
from spade_agentic.config.schema import RunConfig


def overridden(*overrides: str, text: str = "") -> RunConfig:
    return config_from_text(text, name="run.yaml", overrides=overrides)


def test_an_override_changes_its_own_key_only() -> None:
    config = overridden("run.steps=3", text="run: {seed: 7}\n")
    assert config.run.steps == 3
    assert config.run.seed == 7
    assert config.model_copy(update={"run": RunConfig().run}) == RunConfig()


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("run.name=other", ("run", "name"), "other"),
        ("run.deterministic=false", ("run", "deterministic"), False),
        ("selfplay.designer_delay=2", ("selfplay", "designer_delay"), 2),
        ("selfplay.designer_delay=null", ("selfplay", "designer_delay"), None),
        ("selfplay.agent_sampling.temperature=0.7", ("selfplay", "agent_sampling", "temperature"), 0.7),
        ("run.dir=a=b", ("run", "dir"), "a=b"),
    ],
)
def test_values_are_yaml(override: str, path: tuple[str, ...], value: object) -> None:
    found: object = overridden(override)
    for key in path:
        found = getattr(found, key)
    assert found == value


def test_an_option_of_a_plugin_that_is_a_bare_name_can_be_set() -> None:
    config = overridden("learner.options.lr=1e-4", text="learner: torch\n")
    assert (config.learner.name, config.learner.options) == ("torch", {"lr": 1e-4})


def test_an_option_of_a_plugin_that_is_not_named_keeps_the_default_plugin() -> None:
    config = overridden("selfplay.reward.options.floor=true")
    assert (config.selfplay.reward.name, config.selfplay.reward.options) == ("hint_regret", {"floor": True})


def test_a_plugin_can_be_replaced_by_name() -> None:
    assert overridden("selfplay.reward=ema").selfplay.reward.name == "ema"


@pytest.mark.parametrize("key", ["1", "tensorboard"])
def test_an_element_of_a_list_is_named_by_position_or_name(key: str) -> None:
    config = overridden(f"trackers.{key}.options.x=1", text="trackers: [jsonl, tensorboard]\n")
    assert config.trackers[1].options == {"x": 1}


def test_a_whole_list_can_be_replaced() -> None:
    assert [t.name for t in overridden("trackers=[jsonl]").trackers] == ["jsonl"]


def test_the_last_override_wins() -> None:
    assert overridden("run.steps=3", "run.steps=5").run.steps == 5


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("run.stepz=3", "did you mean 'steps'"),
        ("rnu.steps=3", "did you mean 'run'"),
        ("run.steps", "must look like"),
        ("=3", "must look like"),
        ("run..steps=3", "must look like"),
        ("trackers.5=jsonl", "has no element '5'"),
        ("run.steps.x=3", "run.steps"),
        ("run.steps=[", "not valid YAML"),
    ],
)
def test_a_wrong_override_is_refused_and_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        overridden(override)
    assert message in str(caught.value)
    assert override.partition("=")[0] in str(caught.value)


def test_a_wrong_value_names_the_override_and_not_the_line_that_it_replaced() -> None:
    with pytest.raises(ConfigError) as caught:
        overridden("run.steps=0", text="run:\n  steps: 4\n")
    assert "--set run.steps=0" in str(caught.value.where)
    assert "run.yaml:2" not in str(caught.value.where)


def test_plugins_are_added_and_mean_the_same_file_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.yaml").write_text("plugins: [./own.py, some_module]\n")
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    config = load_config(tmp_path / "run.yaml", plugins=["extra.py"])
    assert config.plugins == (str(tmp_path / "own.py"), "some_module", str(other / "extra.py"))
