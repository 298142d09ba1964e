"""A config that extends another: what is merged, what is replaced, and what is refused with the right file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from spade_agentic import ConfigError
from spade_agentic.config.load import config_from_text, config_to_yaml, load_config


def write(folder: Path, **files: str) -> Path:
    """Files by name without ending; returns the path of the first."""
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / f"{next(iter(files))}.yaml"


def refused(path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    return caught.value


# --- what is merged ------------------------------------------------------------------------------------------------------


def test_mappings_are_merged_key_by_key_and_the_extending_file_goes_first(tmp_path: Path) -> None:
    own = write(
        tmp_path,
        own="extends: base.yaml\nrun: {steps: 2}\nselfplay: {agent_sampling: {temperature: 0.5}}\n",
        base="run: {steps: 9, seed: 4}\nselfplay: {seeds: 3, agent_sampling: {max_tokens: 33, temperature: 2.0}}\n",
    )
    config = load_config(own)
    assert (config.run.steps, config.run.seed, config.selfplay.seeds) == (2, 4, 3)
    assert (config.selfplay.agent_sampling.temperature, config.selfplay.agent_sampling.max_tokens) == (0.5, 33)


def test_lists_are_replaced(tmp_path: Path) -> None:
    own = write(tmp_path, own="extends: base.yaml\ntool_sims: [retail]\n", base="tool_sims: [banking, support]\n")
    assert [sim.name for sim in load_config(own).tool_sims] == ["retail"]


@pytest.mark.parametrize("written", ["{name: sqlite, options: {seeds: 1}}", "{name: sqlite}", "sqlite"])
def test_a_plugin_that_is_named_anew_loses_the_options_of_the_old_name(tmp_path: Path, written: str) -> None:
    own = write(
        tmp_path, own=f"extends: base.yaml\nselfplay: {{memory: {written}}}\n",
        base="selfplay: {memory: {name: sqlite, options: {capacity: 7}}}\n",
    )
    assert load_config(own).selfplay.memory.options == ({"seeds": 1} if "seeds" in written else {})


@pytest.mark.parametrize("below", ["{name: sqlite, options: {capacity: 7}}", "sqlite", "null"])
def test_options_without_a_name_are_options_of_the_same_plugin(tmp_path: Path, below: str) -> None:
    own = write(
        tmp_path, own="extends: base.yaml\nselfplay: {memory: {options: {seeds: 1}}}\n", base=f"selfplay: {{memory: {below}}}\n"
    )
    memory = load_config(own).selfplay.memory
    assert memory.name == ("null" if below == "null" else "sqlite")
    assert memory.options == ({"capacity": 7} if "capacity" in below else {}) | {"seeds": 1}


def test_a_config_may_extend_one_that_extends_a_third(tmp_path: Path) -> None:
    own = write(tmp_path, own="extends: middle.yaml\n", middle="extends: base.yaml\nrun: {steps: 2}\n", base="run: {seed: 8}\n")
    assert (load_config(own).run.steps, load_config(own).run.seed) == (2, 8)


def test_a_file_beside_goes_before_the_shipped_config_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    shipped = write(tmp_path / "sub", own="extends: tooluse.yaml\n")
    assert load_config(shipped) == load_config("tooluse.yaml")
    write(tmp_path / "sub", tooluse="run: {steps: 77}\n")
    assert load_config(shipped).run.steps == 77


def test_a_shipped_config_extends_shipped_ones_whatever_lies_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load_config("ablations/fixed_pool.yaml")
    write(tmp_path, tooluse="run: {steps: 77}\n")
    monkeypatch.chdir(tmp_path)
    assert load_config("ablations/fixed_pool.yaml") == expected
    assert expected.run.steps == 24


def test_plugin_files_are_relative_to_the_file_that_lists_them(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep", base="plugins: [./mine.py]\n")
    own = write(tmp_path, own="extends: deep/base.yaml\n")
    assert load_config(own).plugins == (str(tmp_path / "deep" / "mine.py"),)


def test_overrides_come_last(tmp_path: Path) -> None:
    own = write(tmp_path, own="extends: base.yaml\n", base="run: {steps: 9}\n")
    assert load_config(own, ["run.steps=3"]).run.steps == 3


def test_the_resolved_config_stands_alone(tmp_path: Path) -> None:
    own = write(tmp_path, own="extends: base.yaml\n", base="run: {steps: 9}\n")
    text = config_to_yaml(load_config(own))
    assert "extends" not in text
    assert config_from_text(text) == load_config(own)


# --- what is refused -----------------------------------------------------------------------------------------------------


def test_a_mistake_is_placed_in_the_file_that_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = write(tmp_path, own="extends: base.yaml\nrun:\n  seed: 1\n", base="run:\n  seed: 2\n  steps: 0\n")
    assert "base.yaml:3" in str(refused(own).where)
    write(tmp_path, own="extends: base.yaml\nrun:\n  seed: -1\n", base="run:\n  steps: 9\n  seed: 2\n")
    assert "own.yaml:3" in str(refused(own).where)


def test_the_place_of_a_value_that_was_replaced_is_forgotten(tmp_path: Path) -> None:
    own = write(
        tmp_path, own="extends: base.yaml\nengine: embedded\n", base="engine:\n  name: embedded\n  options: {threads: 1}\n"
    )
    config = load_config(own)
    assert "base.yaml" not in config.where("engine.options.threads")
    assert "own.yaml:2" in config.where("engine.options.threads")


@pytest.mark.parametrize("files", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "b"}])
def test_a_circle_is_refused_with_the_way_around_it(tmp_path: Path, files: dict[str, str]) -> None:
    path = write(tmp_path, **{name: f"extends: {other}.yaml\n" for name, other in files.items()})
    error = refused(path)
    assert "circle" in error.what
    assert error.what.count(" -> ") == len(files)


def test_a_missing_file_is_refused_with_the_line_and_the_nearest_name(tmp_path: Path) -> None:
    error = refused(write(tmp_path, own="run: {seed: 1}\nextends: toluse.yaml\n"))
    assert str(tmp_path) in error.what
    assert "own.yaml:2" in str(error.where)
    assert "did you mean 'tooluse.yaml'" in str(error.todo)


@pytest.mark.parametrize("written", ["3", "[a.yaml]", "null", "''"])
def test_extends_names_one_config(tmp_path: Path, written: str) -> None:
    error = refused(write(tmp_path, own=f"extends: {written}\n"))
    assert "own.yaml:1" in str(error.where)


def test_a_misspelt_extends_is_recognised(tmp_path: Path) -> None:
    assert "did you mean 'extends'" in str(refused(write(tmp_path, own="extend: tooluse.yaml\n")).todo)


def test_what_is_extended_must_be_a_run_too(tmp_path: Path) -> None:
    assert "base.yaml" in str(refused(write(tmp_path, own="extends: base.yaml\n", base="- 1\n")).where)
