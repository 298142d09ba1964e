"""From YAML to a run: strict, with the place and the nearest name in every error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from spade_agentic import ConfigError
from spade_agentic.config.load import config_from_text, config_to_yaml, load_config, resolve_model, shipped_configs
from spade_agentic.config.schema import RunConfig
from spade_agentic.config.validation import keys_at

SHIPPED = shipped_configs()


def refused(text: str, **options: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config_from_text(text, name="run.yaml", **options)  # type: ignore[arg-type]
    return caught.value


# --- what is accepted ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_config_loads(name: str) -> None:
    assert load_config(name).run.steps >= 1


def test_the_default_config_is_shipped_and_found_without_its_ending() -> None:
    assert load_config("tooluse") == load_config("tooluse.yaml")


def test_a_local_file_goes_before_the_shipped_config_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tooluse.yaml").write_text("run: {steps: 3}\n")
    monkeypatch.chdir(tmp_path)
    assert load_config("tooluse.yaml").run.steps == 3


def test_an_empty_file_is_the_default_run() -> None:
    assert config_from_text("") == RunConfig()


def test_a_bare_name_is_a_plugin_without_options() -> None:
    config = config_from_text("engine: embedded\nlearner: {name: torch, options: {lr: 1e-4}}\n")
    assert config.engine.options == {}
    assert config.learner.options == {"lr": 1e-4}


@pytest.mark.parametrize("written", ["null", "'null'", "~", "{name: 'null'}"])
def test_the_hint_writer_null_needs_no_quotes(written: str) -> None:
    config = config_from_text(f"selfplay: {{hint_writer: {written}}}")
    assert config.selfplay.hint_writer.name == "null"
    assert config_from_text(config_to_yaml(config)) == config


def test_scalars_are_those_of_yaml_1_2() -> None:
    config = config_from_text("run: {name: no}\nlearner: {name: torch, options: {lr: 1e-6, word: yes, octal: 010}}\n")
    assert config.run.name == "no"
    assert config.learner.options == {"lr": 1e-6, "word": "yes", "octal": 10}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_config_comes_back_equal_from_its_own_yaml(name: str) -> None:
    config = load_config(name)
    assert config_from_text(config_to_yaml(config)) == config


@given(
    steps=st.integers(1, 10**6), seed=st.integers(0, 2**63), temperature=st.floats(0.0, 5.0),
    top_p=st.floats(0.0, 1.0, exclude_min=True), lr=st.floats(1e-12, 1.0), seeds=st.integers(1, 9),
    reward=st.sampled_from(["hint_regret", "blend", "1e6", "null", "true", "a: b", "#x", "ünï"]),
)
def test_any_valid_config_comes_back_equal_from_its_own_yaml(
    steps: int, seed: int, temperature: float, top_p: float, lr: float, seeds: int, reward: str
) -> None:
    config = RunConfig.model_validate(
        {
            "run": {"steps": steps, "seed": seed},
            "learner": {"name": "torch", "options": {"lr": lr}},
            "selfplay": {
                "reward": reward, "seeds": seeds, "min_pairs": 1,
                "agent_sampling": {"temperature": temperature, "top_p": top_p},
            },
        }
    )
    assert config_from_text(config_to_yaml(config)) == config


# --- what is refused -----------------------------------------------------------------------------------------------------


def test_an_unknown_key_names_its_line_and_the_nearest_key() -> None:
    error = refused("run:\n  steps: 4\n  sede: 1\n")
    assert error.what == "run has no key 'sede'"
    assert "run.sede" in str(error.where)
    assert "run.yaml:3" in str(error.where)
    assert "did you mean 'seed'" in str(error.todo)


def test_an_unknown_section_names_the_nearest_one() -> None:
    error = refused("selfpaly: {}\n")
    assert "did you mean 'selfplay'" in str(error.todo)
    assert "run.yaml:1" in str(error.where)


def all_paths() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    queue: list[tuple[str, ...]] = [()]
    while queue:
        path = queue.pop()
        for key in keys_at(RunConfig, path):
            found.append((*path, key))
            if key != "options":
                queue.append((*path, key))
    return found


@given(path=st.sampled_from(all_paths()), position=st.integers(0, 30), letter=st.sampled_from("xqz"))
def test_a_typo_in_any_key_is_refused_and_names_a_known_key(path: tuple[str, ...], position: int, letter: str) -> None:
    key = path[-1]
    typo = key[: position % (len(key) + 1)] + letter + key[position % (len(key) + 1) :]
    siblings = keys_at(RunConfig, path[:-1])
    data: object = {typo: None}
    for part in reversed(path[:-1]):
        # A plugin's section may lack its name: the unknown key comes first all the same.
        data = [data] if part.isdigit() else {part: data}
    import json

    error = refused(json.dumps(data))
    assert f"no key {typo!r}" in error.what
    assert any(repr(sibling) in str(error.todo) or sibling in str(error.todo) for sibling in siblings)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("run: {steps: '4'}", "run.steps"),
        ("run: {steps: 4.0}", "run.steps"),
        ("run: {steps: 0}", "run.steps"),
        ("run: {deterministic: 1}", "run.deterministic"),
        ("run: {name: 'a/b'}", "run.name"),
        ("run: {seed: -1}", "run.seed"),
        ("model: {context_tokens: 1}", "model.context_tokens"),
        ("selfplay: {hinted: sometimes}", "selfplay.hinted"),
        ("selfplay: {refused_advantage: 1.0}", "selfplay.refused_advantage"),
        ("selfplay: {agent_sampling: {top_p: 0.0}}", "selfplay.agent_sampling.top_p"),
        ("tool_sims: []", "tool_sims"),
        ("tool_sims: banking", "tool_sims"),
        ("engine: ''", "engine.name"),
        ("engine: {options: {}}", "engine"),
        ("selfplay: {seeds: 2, min_pairs: 3}", "selfplay"),
    ],
)
def test_a_wrong_value_is_refused_where_it_stands(text: str, part: str) -> None:
    error = refused(text)
    assert part in f"{error.what} {error.where}"
    assert "run.yaml:1" in str(error.where)


def test_a_wrong_word_names_the_nearest_one() -> None:
    assert "did you mean 'every_step'" in str(refused("selfplay: {hinted: every-step}").todo)


def test_a_key_that_stands_twice_is_refused_with_both_lines() -> None:
    error = refused("run: {}\nmodel: {}\nrun: {}\n")
    assert "run.yaml:1 and run.yaml:3" in str(error.where)


@pytest.mark.parametrize("text", ["run: [", "run: {steps: 3", "- 1\n- 2", "3", "run: !!python/object:os.system {}"])
def test_what_is_no_mapping_of_plain_values_is_refused(text: str) -> None:
    assert "run.yaml" in str(refused(text).where)


def test_all_mistakes_are_named_at_once() -> None:
    what = refused("run: {steps: 0, seed: -1, dir: ''}").what
    assert all(f"run.{key}" in what for key in ("steps", "seed", "dir"))
    assert what.count("run.steps") == 1


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("tool_sims: banking", "write a list: [banking]"),
        ("run: {steps: 'many'}", "write a whole number, without quotation marks"),
        ("run: {steps: 1.5}", "write a whole number"),
        ("selfplay: {designer_weight_cap: 'x'}", "write a number, without quotation marks"),
        ("run: {deterministic: 'maybe'}", "write true or false, without quotation marks"),
        ("run: {name: 5}", 'write it as text: "5"'),
    ],
)
def test_a_value_of_the_wrong_type_says_what_to_write(text: str, remedy: str) -> None:
    assert refused(text).todo == remedy


def test_a_config_that_does_not_exist_names_the_nearest_shipped_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'tooluse\.yaml'"):
        load_config("tooluze.yaml")


# --- models --------------------------------------------------------------------------------------------------------------


def test_a_local_model_folder_is_found(tiny_model_dir: Path) -> None:
    assert resolve_model(tiny_model_dir) == tiny_model_dir.resolve()


def test_a_folder_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json"):
        resolve_model(tmp_path)


def test_a_model_that_does_not_exist_names_the_nearest_shipped_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'spade-tiny'"):
        resolve_model("spade-tyni")
