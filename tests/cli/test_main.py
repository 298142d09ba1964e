"""The command line as a whole: light, with errors of one form, and exit codes that scripts can use."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

import spade_agentic
from spade_agentic.cli import configs, output
from spade_agentic.errors import EngineError

Cli = Callable[..., Any]

HEAVY = ("torch", "transformers", "tokenizers", "renderers", "openai", "aiohttp", "numpy", "rich", "pydantic", "yaml")


def loaded_after(code: str) -> set[str]:
    """Names of the top-level modules that a fresh interpreter has imported after ``code``."""
    script = f"import contextlib, io, json, sys\nwith contextlib.redirect_stdout(io.StringIO()):\n    {code}\n"
    script += "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    assert loaded_after("import spade_agentic.cli.main") & set(HEAVY) == set()


def test_help_answers_within_half_a_second() -> None:
    times, command = [], [sys.executable, "-m", "spade_agentic.cli.main", "--help"]
    for _ in range(4):
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        times.append(time.perf_counter() - started)
    for name in ("train", "config", "plugin", "env", "runs", "doctor", "bootstrap"):
        assert name in done.stdout
    assert min(times) < 0.5


@pytest.mark.parametrize(
    "command",
    [
        ["train"], ["config", "show"], ["config", "schema"], ["config", "validate"], ["plugin", "list"], ["plugin", "new"],
        ["plugin", "check"], ["env", "list"], ["env", "show"], ["env", "play"], ["env", "check"], ["runs", "list"],
        ["runs", "show"], ["runs", "watch"], ["runs", "report"], ["doctor"], ["bootstrap"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_command_has_help_and_takes_debug(cli: Cli, command: list[str]) -> None:
    result = cli(*command, "--help")
    assert result.code == 0
    assert "--debug" in result.out


@pytest.mark.parametrize(
    "command",
    [
        ["train"], ["config", "show"], ["config", "validate"], ["plugin", "list"], ["plugin", "new"], ["plugin", "check"],
        ["env", "list"], ["env", "show"], ["env", "play"], ["env", "check"], ["runs", "list"], ["runs", "show"], ["doctor"],
        ["bootstrap"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_command_that_reports_takes_json(cli: Cli, command: list[str]) -> None:
    assert "--json" in cli(*command, "--help").out


def test_the_version_is_printed(cli: Cli) -> None:
    assert cli("--version").out == f"spade-agentic {spade_agentic.__version__}\n"


# --- errors --------------------------------------------------------------------------------------------------------------


def test_a_users_mistake_says_what_where_and_what_to_do_and_exits_with_2(cli: Cli) -> None:
    result = cli("config", "show", "tooluze.yaml")
    assert result.code == 2
    assert result.out == ""
    what, where, todo = result.err.splitlines()
    assert what == "error: there is no config called 'tooluze.yaml', neither a file nor a shipped one"
    assert where.startswith("  in: /")
    assert where.endswith("/tooluze.yaml")
    assert todo.startswith("  do: did you mean 'tooluse.yaml'?")


def test_a_typo_in_an_override_names_the_nearest_key(cli: Cli) -> None:
    result = cli("config", "show", "tooluse.yaml", "--set", "run.stesp=3")
    assert result.code == 2
    assert "did you mean 'steps'" in result.err


@pytest.mark.parametrize("arguments", [["trian"], ["train", "--dryrun"], ["plugin", "nwe"], ["config", "show", "--set"]])
def test_a_wrong_command_or_option_exits_with_2_and_prints_to_stderr(cli: Cli, arguments: list[str]) -> None:
    result = cli(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err


def test_a_mistyped_option_names_the_nearest(cli: Cli) -> None:
    assert "--dry-run" in cli("train", "--dryrun").err


@pytest.mark.parametrize(
    ("error", "first"),
    [
        (EngineError("no answer"), "error: EngineError: no answer"),
        (RuntimeError("boom"), "internal error: RuntimeError: boom"),
    ],
)
def test_a_fault_of_ours_exits_with_1_without_a_traceback(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: Exception, first: str
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(configs, "say", fail)
    result = cli("config", "show")
    assert result.code == 1
    assert result.err.splitlines()[0] == first
    assert "--debug" in result.err
    assert "Traceback" not in result.err


def test_a_traceback_is_shown_only_with_debug(cli: Cli) -> None:
    assert "Traceback" not in cli("config", "show", "nowhere").err
    result = cli("config", "show", "nowhere", "--debug")
    assert result.code == 2
    assert "Traceback" in result.err


def test_an_interrupt_exits_with_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(configs, "say", interrupt)
    assert cli("config", "show").code == 130


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m spade_agentic.cli.main config schema | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""


# --- printing ------------------------------------------------------------------------------------------------------------


def test_json_holds_no_number_that_json_has_not(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit_json({"a": float("nan"), "b": [float("inf"), 1.5], "c": {3: "ü"}})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5], "c": {"3": "ü"}}


def test_a_table_cuts_nothing_off_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("what", "text"), [("a", "x" * 300), ("[bold]", None)])
    printed = capsys.readouterr().out
    assert printed.count("x") >= 300
    assert "[bold]" in printed
