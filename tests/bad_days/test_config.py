"""Mistakes in what a user writes: the config, the command line, the model's folder, a plugin's path."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bad_day_page import BadDay

Cli = Callable[..., Any]
Yaml = Callable[[str | bytes], Path]


# --- typos ---------------------------------------------------------------------------------------------------------------


@pytest.mark.bad_day("a typo in a section of the config")
def test_a_typo_at_the_top(cli: Cli, day: BadDay, yaml_file: Yaml) -> None:
    day.seen(cli("config", "validate", yaml_file("rnu: {steps: 2}")))


@pytest.mark.bad_day("a typo in a key")
def test_a_typo_below(cli: Cli, day: BadDay, yaml_file: Yaml) -> None:
    day.seen(cli("config", "validate", yaml_file("run:\n  stpes: 2")))


@pytest.mark.bad_day("a typo in a plugin's name")
def test_a_typo_in_a_plugins_name(cli: Cli, day: BadDay, yaml_file: Yaml) -> None:
    day.seen(cli("config", "validate", yaml_file("selfplay: {designer: blueprnt}")))


@pytest.mark.bad_day("a typo in a plugin's option")
def test_a_typo_in_an_option(cli: Cli, day: BadDay, yaml_file: Yaml) -> None:
    day.seen(cli("config", "validate", yaml_file("selfplay: {reward: {name: hint_regret, options: {flor: true}}}")))


@pytest.mark.bad_day("a typo in --set")
def test_a_typo_in_an_override(cli: Cli, day: BadDay) -> None:
    day.seen(cli("train", "tooluse", "--set", "run.stpes=3"))


@pytest.mark.bad_day("a typo in the config's name")
def test_a_typo_in_the_name_of_a_config(cli: Cli, day: BadDay) -> None:
    day.seen(cli("train", "tooluze.yaml"))


@pytest.mark.bad_day("a typo in a command or an option of the command line")
@pytest.mark.parametrize("arguments", [["trian"], ["config", "shwo"], ["train", "--dryrun"]])
def test_a_typo_in_a_command(cli: Cli, day: BadDay, arguments: list[str]) -> None:
    day.seen(cli(*arguments))


# --- what is no config ---------------------------------------------------------------------------------------------------


@pytest.mark.bad_day("a value of the wrong type")
def test_a_wrong_type(cli: Cli, day: BadDay, yaml_file: Yaml) -> None:
    day.seen(cli("config", "validate", yaml_file("run: {steps: two}")))


@pytest.mark.bad_day("YAML that cannot be parsed")
@pytest.mark.parametrize("text", ["run: [", "run:\n\tsteps: 2", "a: 1\n---\nb: 2", "run: !!python/object:os.system {}", "\0"])
def test_broken_yaml(cli: Cli, day: BadDay, yaml_file: Yaml, text: str) -> None:
    day.seen(cli("config", "validate", yaml_file(text)))


@pytest.mark.bad_day("YAML without an end: an alias inside of what it names")
@pytest.mark.parametrize("text", ["run: &run {name: *run}", "plugins: " + "[" * 3000 + "]" * 3000])
def test_endless_yaml(cli: Cli, day: BadDay, yaml_file: Yaml, text: str) -> None:
    day.seen(cli("config", "validate", yaml_file(text)))


@pytest.mark.bad_day("a key that stands twice")
def test_a_doubled_key(cli: Cli, day: BadDay, yaml_file: Yaml) -> None:
    result = cli("config", "validate", yaml_file("run:\n  steps: 2\n  steps: 3\n"))
    day.seen(result)
    assert "my.yaml:2 and" in result.err
    assert "my.yaml:3" in result.err


@pytest.mark.bad_day("a config that is no text")
def test_a_config_in_another_encoding(cli: Cli, day: BadDay, yaml_file: Yaml) -> None:
    day.seen(cli("config", "validate", yaml_file(b"run: \xff\xfe")))


@pytest.mark.bad_day("a folder where a config is wanted")
def test_a_folder_as_config(cli: Cli, day: BadDay, tmp_path: Path) -> None:
    day.seen(cli("config", "validate", tmp_path))


@contextmanager
def nobody() -> Iterator[None]:
    """Without root's right to read everything."""
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)


@pytest.mark.bad_day("a config that may not be read")
@pytest.mark.parametrize("forbidden", ["file", "folder"])
def test_an_unreadable_config(cli: Cli, day: BadDay, yaml_file: Yaml, tmp_path: Path, forbidden: str) -> None:
    path = yaml_file("run: {steps: 2}")
    (path if forbidden == "file" else tmp_path).chmod(0o000)
    try:
        with nobody():
            result = cli("config", "validate", path)
    finally:
        tmp_path.chmod(0o700)
    day.seen(result)


# --- files that a run names ----------------------------------------------------------------------------------------------


@pytest.mark.bad_day("a plugin file that is not there")
def test_a_missing_plugin_file(cli: Cli, day: BadDay, tmp_path: Path) -> None:
    day.seen(cli("train", "tooluse", "--plugin", tmp_path / "mine.py", "--dry-run"))


@pytest.mark.bad_day("a model folder that is not there")
def test_a_missing_model(cli: Cli, day: BadDay) -> None:
    day.seen(cli("train", "tooluse", "--set", "model.path=/nowhere/model", "--dry-run"))


@pytest.mark.bad_day("a model folder without a tokenizer")
def test_a_model_without_tokenizer(cli: Cli, day: BadDay, model_copy: Path) -> None:
    (model_copy / "tokenizer.json").unlink()
    day.seen(cli("train", "tooluse", "--set", f"model.path={model_copy}", "--dry-run"))


@pytest.mark.bad_day("a model folder without weights")
def test_a_model_without_weights(cli: Cli, day: BadDay, model_copy: Path) -> None:
    (model_copy / "model.safetensors").unlink()
    day.seen(cli("train", "tooluse", "--set", f"model.path={model_copy}", "--dry-run"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def noise(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 40)


def pointer(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


def header(path: Path) -> None:
    path.write_bytes((20).to_bytes(8, "little") + b'{"a": {"shape": [1]}')


@pytest.mark.bad_day("a model folder that is half written or damaged")
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("model.safetensors", damage) for damage in (cut, noise, pointer, header)),
        ("model.safetensors", lambda path: path.write_bytes(b"")),
        ("config.json", lambda path: path.write_text("{")),
        ("config.json", lambda path: path.write_text("[]")),
        ("tokenizer.json", cut),
    ],
)
def test_a_damaged_model(cli: Cli, day: BadDay, model_copy: Path, name: str, damage: Callable[[Path], None]) -> None:
    damage(model_copy / name)
    result = cli("train", "tooluse", "--set", f"model.path={model_copy}", "--dry-run")
    day.seen(result)
    assert str(model_copy / name) in result.err


@pytest.mark.bad_day("a model folder that lacks one of its shards")
def test_a_missing_shard(cli: Cli, day: BadDay, model_copy: Path) -> None:
    (model_copy / "model.safetensors").rename(model_copy / "model-1-of-2.safetensors")
    (model_copy / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}'
    )
    result = cli("train", "tooluse", "--set", f"model.path={model_copy}", "--dry-run")
    day.seen(result)
    assert "model-2-of-2.safetensors" in result.err
