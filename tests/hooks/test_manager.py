"""The plugin manager: what is found, and how a broken plugin is refused."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from spade_agentic import ConfigError, PluginError, PluginManager, PluginRef
from spade_agentic.config.load import config_from_text
from spade_agentic.hooks.specs import FACTORY_HOOKS

Write = Callable[..., Path]

HEAD = """
from spade_agentic import Factory, Options, hookimpl
"""

GOOD = HEAD + """
class Mine(Options):
    size: int = 3

@hookimpl
def curriculum():
    return [Factory("mine", lambda options, context: options.size, Mine, "a sample")]
"""


def broken(path: Path, hook: str | None = None) -> PluginError:
    """The error that a plugin file makes, when it is loaded or when its factories are asked for."""
    manager = PluginManager()
    if hook is not None:
        manager.load_reference(path)
    with pytest.raises(PluginError) as caught:
        manager.load_reference(path) if hook is None else manager.factories(hook)
    return caught.value


# --- what is found -------------------------------------------------------------------------------------------------------


def test_every_kind_has_a_first_party_plugin(manager: PluginManager) -> None:
    assert [hook for hook in FACTORY_HOOKS if not manager.factories(hook)] == []
    assert {info.third_party for info in manager.plugins.values()} == {False}


def test_a_plugin_file_is_found_built_and_named(plugin_file: Write) -> None:
    manager = PluginManager()
    assert manager.load_reference(plugin_file(GOOD)) == ["my_plugin"]
    factory, options = manager.resolve("curriculum", PluginRef(name="mine", options={"size": 5}))
    assert factory.build(options, None) == 5
    assert manager.owner("curriculum", "mine").third_party
    assert manager.hooks_of("my_plugin") == ["curriculum"]


def test_a_file_that_is_named_twice_is_loaded_once(plugin_file: Write) -> None:
    manager, path = PluginManager(), plugin_file(GOOD)
    assert manager.load_reference(path) == ["my_plugin"]
    assert manager.load_reference(path) == []


def test_a_package_folder_and_a_project_folder_are_found(tmp_path: Path) -> None:
    package = tmp_path / "spade_test_package"
    package.mkdir()
    (package / "__init__.py").write_text(GOOD)
    project = tmp_path / "project"
    module = project / "src" / "spade_test_project"
    module.mkdir(parents=True)
    (module / "__init__.py").write_text(GOOD.replace("mine", "other"))
    (project / "pyproject.toml").write_text('[project.entry-points.spade_agentic]\nentry = "spade_test_project"\n')
    manager = PluginManager.load([package, project])
    assert {"mine", "other"} <= set(manager.factories("curriculum"))
    assert manager.owner("curriculum", "other").name == "entry"


# --- what is refused -----------------------------------------------------------------------------------------------------


def test_a_broken_import_names_the_file_and_the_line(plugin_file: Write) -> None:
    path = plugin_file(HEAD + "x = 1\nraise RuntimeError('no luck')\n")
    error = broken(path)
    assert "RuntimeError: no luck" in error.what
    assert error.where == f"{path}:4"


def test_a_syntax_error_names_the_file_and_the_line(plugin_file: Write) -> None:
    path = plugin_file("x = 1\ndef (\n")
    assert broken(path).where == f"{path}:2"


def test_a_plugin_without_hooks_is_refused_and_told_the_hooks(plugin_file: Write) -> None:
    error = broken(plugin_file("x = 1\n"))
    assert "implements no hook" in error.what
    assert "designer_reward" in str(error.todo)


def test_an_unknown_hook_names_the_nearest(plugin_file: Write) -> None:
    error = broken(plugin_file(HEAD + "@hookimpl\ndef curiculum():\n    return []\n"))
    assert "'my_plugin' implements 'curiculum'" in error.what
    assert "did you mean 'curriculum'" in str(error.todo)


def test_a_life_cycle_argument_that_does_not_exist_is_named_with_the_nearest(plugin_file: Write) -> None:
    error = broken(plugin_file(HEAD + "@hookimpl\ndef step_committed(stepp):\n    pass\n"))
    assert "'step_committed' of plugin 'my_plugin' wants an argument 'stepp'" in error.what
    assert "did you mean 'step'" in str(error.todo)
    assert "my_plugin.py:3" in str(error.where)


def test_a_factory_hook_with_an_argument_is_refused(plugin_file: Write) -> None:
    error = broken(plugin_file(HEAD + "@hookimpl\ndef tracker(config):\n    return []\n"))
    assert "wants an argument 'config'" in error.what
    assert error.todo == "tracker gives no arguments"


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("@hookimpl\ndef play_finished(*plays):\n    pass\n", "takes \\*plays"),
        ("@hookimpl\nasync def play_finished(play):\n    pass\n", "is async"),
        ("@hookimpl(wrapper=True)\ndef play_finished(play):\n    yield\n", "is a wrapper"),
    ],
)
def test_hooks_that_cannot_be_called_are_refused(plugin_file: Write, definition: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        PluginManager().load_reference(plugin_file(HEAD + definition))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("None", "returned NoneType, not a list of Factory"),
        ("'mine'", "returned str, not a list of Factory"),
        ("[dict]", "returned a list with <class 'dict'> in it"),
        ("[Factory('', lambda o, c: 1)]", "a factory whose name is ''"),
        ("[Factory('mine', lambda o, c: 1, dict)]", "options are <class 'dict'>"),
        ("[Factory('mine', 3)]", "build is 3"),
        ("[Factory('mine', lambda options: 1)]", r"does not take \(options, context\)"),
        ("1 / 0", "raised ZeroDivisionError"),
    ],
)
def test_a_wrong_answer_of_a_factory_hook_names_plugin_hook_and_what_is_wrong(
    plugin_file: Write, answer: str, message: str
) -> None:
    path = plugin_file(HEAD + f"@hookimpl\ndef learner():\n    return {answer}\n")
    error = broken(path, "learner")
    with pytest.raises(PluginError, match=message):
        raise error
    assert "'learner'" in error.what
    assert "'my_plugin'" in error.what
    assert str(path) in str(error.where)


def test_two_plugins_with_one_factory_name_are_refused_with_both(plugin_file: Write) -> None:
    manager = PluginManager.load([plugin_file(GOOD, "first"), plugin_file(GOOD, "second")])
    with pytest.raises(PluginError, match=r"'mine' is given by two plugins: 'first' and 'second'|'second' and 'first'"):
        manager.factories("curriculum")


@pytest.mark.parametrize("reference", ["./nowhere.py", "spade_no_such_module"])
def test_a_plugin_that_does_not_exist_is_named(reference: str) -> None:
    with pytest.raises(PluginError, match="there is no"):
        PluginManager.load([reference])


def test_a_project_without_an_entry_point_is_told_to_add_one(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    with pytest.raises(PluginError, match=r"add \[project.entry-points.spade_agentic\]"):
        PluginManager.load([tmp_path])


def test_an_installed_plugin_that_cannot_be_imported_is_named_and_can_be_left_out() -> None:
    entry = EntryPoint("gone", "spade_no_such_module", "spade_agentic")
    with pytest.raises(PluginError, match="'gone' cannot be imported"):
        PluginManager().register_entry_point(entry)


# --- resolving -----------------------------------------------------------------------------------------------------------


def test_an_unknown_plugin_names_the_line_and_the_nearest(manager: PluginManager) -> None:
    config = config_from_text("selfplay:\n  reward: hint_regrets\n", name="run.yaml")
    with pytest.raises(ConfigError) as caught:
        manager.resolve("designer_reward", config.selfplay.reward, config=config)
    assert "no designer_reward called 'hint_regrets'" in caught.value.what
    assert "run.yaml:2" in str(caught.value.where)
    assert "did you mean 'hint_regret'" in str(caught.value.todo)


@pytest.mark.parametrize(
    ("options", "todo"), [("{flor: true}", "did you mean 'floor'"), ("{floor: maybe}", "write true or false")]
)
def test_a_wrong_option_names_the_line_and_the_option(manager: PluginManager, options: str, todo: str) -> None:
    text = f"selfplay:\n  reward:\n    name: hint_regret\n    options: {options}\n"
    config = config_from_text(text, name="run.yaml")
    with pytest.raises(ConfigError) as caught:
        manager.resolve("designer_reward", config.selfplay.reward, config=config)
    assert "run.yaml:4" in str(caught.value.where)
    assert todo in str(caught.value.todo)
