"""``env list|show|play|check``."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spade_agentic.cli.envs import action_line, read_action
from spade_agentic.errors import UserError
from spade_agentic.testing.samples import COUNTER_SOURCE, ECHO_SOURCE

Cli = Callable[..., Any]

IN_PROCESS = """
from spade_agentic import Factory, hookimpl
from spade_agentic.testing import InProcessSandbox

@hookimpl
def sandbox():
    return [Factory("in_process", lambda options, context: InProcessSandbox(), doc="unsafe")]
"""


@pytest.fixture
def here(plugin_file: Callable[..., Path]) -> list[object]:
    """Options that run programs in this process: what is tested is the command."""
    return ["--plugin", plugin_file(IN_PROCESS, "in_process"), "--sandbox", "in_process"]


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    path = tmp_path / "counter.py"
    path.write_text(COUNTER_SOURCE)
    return path


# --- list and show -------------------------------------------------------------------------------------------------------


def test_list_shows_every_simulator_with_its_goals_and_tools(cli: Cli) -> None:
    listed = {sim["name"]: sim for sim in cli("env", "list", "--json").json()}
    assert {"banking", "support"} <= set(listed)
    for sim in listed.values():
        assert len(sim["goals"]) >= 10
        assert len(sim["tools"]) >= 8
    text = cli("env", "list").out
    assert all(goal in text for goal in listed["banking"]["goals"])


def test_show_describes_a_simulator(cli: Cli) -> None:
    description = cli("env", "show", "banking", "--json").json()
    text = cli("env", "show", "banking").out
    for goal, about in description["goals"].items():
        assert goal in text
        assert about["phrasings"][0] in text


def test_show_prints_the_source_of_an_example(cli: Cli) -> None:
    source = cli("env", "show", "banking", "--source", "--seed", "3").out
    compile(source, "example", "exec")
    assert source == cli("env", "show", "banking", "--source", "--seed", "3").out


def test_show_tells_what_an_agent_meets_and_the_solution(cli: Cli, counter: Path, here: list[object]) -> None:
    text = cli("env", "show", counter, "--seed", "4", *here).out
    shown = cli("env", "show", counter, "--seed", "4", "--json", *here).json()
    assert shown["first_observation"] in text
    assert "set_counter" in text
    assert f"number={shown['solution'][1][0]['arguments']['number']}" in text


def test_an_environment_that_does_not_exist_names_the_nearest(cli: Cli) -> None:
    result = cli("env", "show", "bankign")
    assert result.code == 2
    assert "did you mean 'banking'" in result.err


# --- play ----------------------------------------------------------------------------------------------------------------


def test_the_reference_solution_can_be_replayed(cli: Cli, counter: Path, here: list[object]) -> None:
    result = cli("env", "play", counter, "--solution", *here)
    assert result.code == 0, result.err
    assert result.out.count("> set_counter number=") == 2
    assert "the play is over: reward 1" in result.out
    replay = cli("env", "play", counter, "--solution", "--json", *here).json()
    assert replay["reward"] == 1.0
    assert len(replay["turns"]) == 3


def test_a_program_without_tools_can_be_replayed(cli: Cli, tmp_path: Path, here: list[object]) -> None:
    (tmp_path / "echo.py").write_text(ECHO_SOURCE)
    assert cli("env", "play", tmp_path / "echo.py", "--solution", "--json", *here).json()["reward"] == 1.0


def test_the_example_of_a_simulator_can_be_replayed(cli: Cli, here: list[object]) -> None:
    assert cli("env", "play", "banking", "--solution", "--json", *here).json()["reward"] == 1.0


def test_a_play_can_be_stepped_through_by_hand(
    cli: Cli, counter: Path, here: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "set_conter number=3\nset_counter number=three\nread_counter\nsay done\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    result = cli("env", "play", counter, *here)
    assert "did you mean 'set_counter'" in result.out
    assert "valid integer" in result.out
    assert "\n0\n" in result.out
    assert "the play is over: reward 0" in result.out


def test_a_play_by_hand_says_how_to_play_and_what_may_be_said(
    cli: Cli, counter: Path, here: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    out = cli("env", "play", counter, *here).out
    assert "number: integer" in out
    assert "TOOL key=value" in out
    assert "at most" in out


def test_a_plugin_is_not_taken_for_a_program(cli: Cli, plugin_file: Callable[..., Path], here: list[object]) -> None:
    result = cli("env", "play", plugin_file(IN_PROCESS, "simulator"), *here)
    assert result.code == 2
    assert "--plugin" in result.err


def test_a_play_ends_with_its_input(cli: Cli, counter: Path, here: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("read_counter\n"))
    assert "left before the end" in cli("env", "play", counter, *here).out


def test_turns_are_counted_in_a_play_by_hand(
    cli: Cli, counter: Path, here: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("read_counter\n" * 20))
    assert "the turns are used up" in cli("env", "play", counter, *here).out


TOOLS = [
    {
        "function": {
            "name": "move",
            "parameters": {"properties": {"to": {"type": "string"}, "amount": {"type": "integer"}, "tags": {"type": "array"}}},
        }
    }
]


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("say done", {"type": "text", "text": "done"}),
        ("say", {"type": "text", "text": ""}),
        ("move to=A1 amount=3", {"type": "call", "name": "move", "arguments": {"to": "A1", "amount": 3}}),
        ("move to=007", {"type": "call", "name": "move", "arguments": {"to": "007"}}),
        ("move to='A B' tags='[1, 2]'", {"type": "call", "name": "move", "arguments": {"to": "A B", "tags": [1, 2]}}),
        ("move amount=x", {"type": "call", "name": "move", "arguments": {"amount": "x"}}),
        ("move", {"type": "call", "name": "move", "arguments": {}}),
    ],
)
def test_a_line_is_read_by_the_types_of_the_schema(line: str, action: dict[str, Any]) -> None:
    assert read_action(line, TOOLS) == action


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mvoe to=A", "did you mean 'move'"), ("move A", "is not key=value"), ("move to='A", "quotation"),
        ("move to=Rosa Hill", "a value with spaces in it stands in quotation marks"),
        ("move amonut=3", "did you mean 'amount'"),
    ],
)
def test_a_line_that_cannot_be_read_says_why(line: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_action(line, TOOLS)


# --- check ---------------------------------------------------------------------------------------------------------------


def test_a_sound_program_is_admitted(cli: Cli, counter: Path, here: list[object]) -> None:
    result = cli("env", "check", counter, *here)
    assert result.code == 0, result.out + result.err
    assert "admitted" in result.out
    report = cli("env", "check", counter, "--json", *here).json()[0]
    assert report["admitted"]
    assert report["tools"] == ["set_counter", "read_counter"]


def test_the_example_of_every_simulator_is_admitted(cli: Cli, here: list[object]) -> None:
    result = cli("env", "check", "banking", "support", "--json", *here)
    assert [report["admitted"] for report in result.json()] == [True, True], result.out


def test_a_program_that_is_refused_says_by_which_gate_and_why(cli: Cli, tmp_path: Path, here: list[object]) -> None:
    path = tmp_path / "done.py"
    path.write_text(COUNTER_SOURCE.replace("lambda: self.value == number", "lambda: True"))
    result = cli("env", "check", path, *here)
    assert result.code == 2
    assert "refused by the gate" in result.out
    report = cli("env", "check", path, "--json", *here).json()[0]
    assert not report["admitted"]
    assert report["refusal"]["code"] in result.out


@pytest.mark.parametrize("arguments", [["--skill", "data_retreival"], ["--sandbox", "nowhere"]])
def test_a_wrong_skill_or_sandbox_is_a_users_mistake(cli: Cli, counter: Path, arguments: list[str]) -> None:
    result = cli("env", "check", counter, *arguments)
    assert result.code == 2
    assert result.err.startswith("error: ")


@given(st.dictionaries(st.sampled_from(["to", "note"]), st.text(st.characters(exclude_categories=["Cs", "Cc"]))))
def test_a_call_of_a_shown_solution_can_be_typed_as_it_is_shown(arguments: dict[str, str]) -> None:
    """Whatever a value holds, spaces and quotes included."""
    schema = {"properties": {"to": {"type": "string"}, "note": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "move", "parameters": schema}}]
    shown = action_line({"type": "call", "name": "move", "arguments": arguments})
    assert read_action(shown, tools) == {"type": "call", "name": "move", "arguments": arguments}
