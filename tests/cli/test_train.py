"""``train``: what is checked before anything heavy starts, and what a resumed run may change."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spade_agentic.cli import train as train_module
from spade_agentic.config.load import load_config
from spade_agentic.runs.layout import RunDir
from spade_agentic.runs.recorder import RunRecorder
from spade_agentic.selfplay.loop import StepRecord

Cli = Callable[..., Any]


@pytest.fixture
def dry(cli: Cli, tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs ``train tooluse.yaml --dry-run`` with a model that is there, from an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *more: cli("train", "tooluse.yaml", "--dry-run", "--set", f"model.path={tiny_model_dir}", *more)


# --- dry run -------------------------------------------------------------------------------------------------------------


def test_a_dry_run_prints_the_resolved_run_and_its_cost(dry: Cli, tmp_path: Path) -> None:
    result = dry()
    assert result.code == 0, result.err
    steps = load_config("tooluse.yaml").run.steps
    for text in ("selfplay:", "hint_regret", "plain plays", f"{steps} steps x", "sampled tokens", "not made"):
        assert text in result.out
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_costs_are_numbers_in_json(dry: Cli) -> None:
    plan = dry("--json", "--set", "run.steps=2", "--set", "selfplay.environments=3").json()
    assert plan["cost"]["plain_plays"] == 2 * 3 * 4 * 4
    assert plan["cost"]["tokens_max"] > plan["cost"]["tokens_estimate"] > 0
    assert plan["config"]["run"]["steps"] == 2
    assert {part["name"] for part in plan["plugins"]} >= {"embedded", "torch", "blueprint", "hint_regret"}


@pytest.mark.skipif("__import__('torch').cuda.is_available()", reason="this machine has a GPU")
def test_a_dry_run_refuses_a_device_that_is_not_there(dry: Cli) -> None:
    result = dry("--set", "learner.options.device=cuda")
    assert result.code == 2
    assert "no CUDA device" in result.err
    assert "learner.options.device" in result.err


def test_a_plugin_can_ask_the_machine_for_what_its_options_need(dry: Cli, plugin_file: Callable[..., Path]) -> None:
    source = """
from spade_agentic import Factory, Options, UserError, hookimpl

class Needs(Options):
    def check_machine(self):
        raise UserError("there is no quantum computer", where="trackers", todo="build one")

@hookimpl
def tracker():
    return [Factory("quantum", lambda options, context: None, Needs, doc="x")]
"""
    result = dry("--plugin", plugin_file(source, "quantum"), "--set", "trackers=[quantum]")
    assert result.code == 2
    assert "no quantum computer" in result.err


def test_a_dry_run_loads_no_model_library(tiny_model_dir: Path, tmp_path: Path) -> None:
    script = (
        "import sys\nfrom spade_agentic.cli.main import main\n"
        f"arguments = ['train', 'tooluse.yaml', '--dry-run', '--json', '--set', 'model.path={tiny_model_dir}']\n"
        "try:\n    main(arguments)\nexcept SystemExit as exit_:\n    assert not exit_.code, exit_.code\n"
        "heavy = [name for name in ('torch', 'tensorflow', 'sglang', 'megatron') if name in sys.modules]\n"
        "print(heavy, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip().splitlines()[-1] == "[]"
    assert json.loads(done.stdout)["cost"]["plain_plays"] > 0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("selfplay.reward.options.flor=true", "did you mean 'floor'"),
        ("learner.options.lr=-1", "learner.options.lr"),
        ("trackers=[jsonl, csv]", "no tracker called 'csv'"),
        ("selfplay.curriculum.options.active=0", "selfplay.curriculum.options.active"),
    ],
)
def test_a_wrong_option_is_refused_before_a_model_is_looked_for(cli: Cli, override: str, message: str) -> None:
    result = cli("train", "tooluse.yaml", "--set", "model.path=/nowhere", "--set", override, "--dry-run")
    assert result.code == 2
    assert message in result.err
    assert "no model" not in result.err


def test_a_plugin_file_can_be_added_and_used(dry: Cli, plugin_file: Callable[..., Path]) -> None:
    path = plugin_file(
        """
        from spade_agentic import Factory, hookimpl

        class Zero:
            def reward(self, item):
                return 0.0

        @hookimpl
        def designer_reward():
            return [Factory("zero", lambda options, context: Zero(), doc="nothing for anybody")]
        """
    )
    plan = dry("--plugin", path, "--set", "selfplay.reward=zero", "--json").json()
    assert [p["plugin"] for p in plan["plugins"] if p["path"] == "selfplay.reward"] == ["my_plugin"]
    assert plan["config"]["plugins"] == [str(path)]


def test_train_without_a_name_says_what_to_type(cli: Cli) -> None:
    result = cli("train")
    assert result.code == 2
    assert "spade-agentic train tooluse.yaml" in result.err


# --- fresh and resumed ---------------------------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What ``train`` would have run: the run itself is cut out."""
    from spade_agentic.selfplay import build

    calls: list[dict[str, Any]] = []

    def run_training(config: Any, **how: Any) -> Any:
        calls.append({"config": config, **how})
        return SimpleNamespace(status="finished")

    monkeypatch.setattr(build, "run_training", run_training)
    monkeypatch.setattr(train_module, "_print_summary", lambda *arguments: None)
    return calls


def stored_run(folder: Path, model: Path, *overrides: str) -> RunDir:
    """A run directory as a run leaves it that was stopped before its first step."""
    config = load_config("tooluse.yaml", [f"model.path={model}", *overrides])
    RunRecorder.begin(folder, config.to_data(), resume=False).end("interrupted")
    return RunDir(folder)


def test_a_fresh_run_gets_a_folder_of_its_own(
    cli: Cli, started: list[dict[str, Any]], tiny_model_dir: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        result = cli("train", "tooluse.yaml", "--set", f"model.path={tiny_model_dir}", "--set", f"run.dir={tmp_path}")
        assert result.code == 0, result.err
    folders = [call["run_dir"] for call in started]
    assert all(folder.parent == tmp_path and "tooluse" in folder.name for folder in folders)
    assert not any(call["resume"] for call in started)


def test_a_folder_with_a_run_in_it_is_not_written_over(cli: Cli, tiny_model_dir: Path, tmp_path: Path) -> None:
    stored_run(tmp_path / "run", tiny_model_dir)
    result = cli("train", "tooluse.yaml", "--run-dir", tmp_path / "run")
    assert result.code == 2
    assert "--resume" in result.err


def test_a_resumed_run_takes_the_stored_config(
    cli: Cli, started: list[dict[str, Any]], tiny_model_dir: Path, tmp_path: Path
) -> None:
    stored_run(tmp_path / "run", tiny_model_dir, "run.seed=5")
    result = cli("train", "--resume", "--run-dir", tmp_path / "run", "--set", "run.steps=99")
    assert result.code == 0, result.err
    assert started[0]["resume"]
    assert (started[0]["config"].run.seed, started[0]["config"].run.steps) == (5, 99)


def test_a_resumed_run_cannot_change_what_its_steps_depend_on(cli: Cli, tiny_model_dir: Path, tmp_path: Path) -> None:
    stored_run(tmp_path / "run", tiny_model_dir)
    result = cli("train", "--resume", "--run-dir", tmp_path / "run", "--set", "selfplay.seeds=7")
    assert result.code == 2
    assert "a resumed run cannot change selfplay.seeds" in result.err


def test_a_run_that_has_taken_all_of_its_steps_is_not_resumed_unless_it_gets_more(
    cli: Cli, started: list[dict[str, Any]], tiny_model_dir: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    config = load_config("tooluse.yaml", [f"model.path={tiny_model_dir}", "run.steps=1"])
    recorder = RunRecorder.begin(folder, config.to_data(), resume=False)
    recorder.commit(StepRecord(step=1), {}, lambda checkpoint: None)
    recorder.end("finished")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "sqlite" not in path.name}
    result = cli("train", "--resume", "--run-dir", folder)
    assert result.code == 2
    assert "this run is finished: it has taken 1 steps of 1" in result.err
    assert not started
    assert before == {path: path.read_bytes() for path in before}
    assert cli("train", "--resume", "--run-dir", folder, "--set", "run.steps=2").code == 0
    assert started[0]["resume"]


def test_the_newest_run_is_resumed_where_none_is_named(
    cli: Cli, started: list[dict[str, Any]], tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    monkeypatch.chdir(tmp_path)
    for age, name in ((200, "old"), (100, "new")):
        run = stored_run(tmp_path / "runs" / name, tiny_model_dir)
        os.utime(run.store, (1e9 - age, 1e9 - age))
    result = cli("train", "--resume")
    assert result.code == 0, result.err
    assert started[0]["run_dir"].name == "new"


def test_there_must_be_a_run_to_resume(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (["--resume"], ["--resume", "--run-dir", "nowhere"]):
        result = cli("train", *arguments)
        assert result.code == 2
        assert "no run" in result.err
