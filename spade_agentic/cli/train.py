"""``train``: one run, from a config to a summary."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .configs import Sets
from .output import INTERRUPTED, Json, Plugins, debugging, emit_json, print_table, say

if TYPE_CHECKING:
    from spade_agentic.config.schema import RunConfig
    from spade_agentic.hooks.resolution import ResolvedRun

__all__ = ["train"]

MAY_CHANGE = ("run.steps", "run.dir", "evaluation.every", "trackers", "plugins")
"""What a resumed run may set anew: nothing that the steps taken so far depend on."""


def train(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME.yaml", help="A local file, or the name of a shipped config. Optional with --resume."),
    ] = None,
    sets: Sets = None,
    plugin: Plugins = None,
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", metavar="DIR", help="Folder of the run. Default: a new one in run.dir.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that was stopped: --run-dir, or the newest of that name.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the resolved run and its cost, load no model.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a policy by self-play."""
    from spade_agentic.errors import ConfigError
    from spade_agentic.hooks.manager import PluginManager
    from spade_agentic.hooks.resolution import resolve_run

    if name is None and not resume:
        raise ConfigError(
            "train needs the name of a config", where="spade-agentic train", todo="try: spade-agentic train tooluse.yaml"
        )
    if resume:
        config, run_dir = _resumed(name, sets or [], plugin or [], run_dir)
    else:
        assert name is not None
        config, run_dir = _fresh(name, sets or [], plugin or [], run_dir)
    manager = PluginManager.load(config.plugins)
    resolved = resolve_run(config, manager)
    if dry_run:
        _print_plan(resolved, run_dir, as_json)
        return

    from spade_agentic.selfplay.build import run_training

    from .logs import configure_logs

    configure_logs(debug=debugging())
    summary = run_training(config, run_dir=run_dir, resume=resume, manager=manager)
    _print_summary(summary, run_dir, as_json)
    if summary.status == "interrupted":
        sys.stderr.write(f"interrupted: continue with spade-agentic train --resume --run-dir {run_dir}\n")
        raise typer.Exit(INTERRUPTED)


def _fresh(name: str, sets: list[str], plugins: list[str], run_dir: Path | None) -> tuple[RunConfig, Path]:
    from spade_agentic.config.load import load_config
    from spade_agentic.errors import RunDirError
    from spade_agentic.runs.layout import RunDir, new_run_id
    from spade_agentic.runs.store import has_run

    config = load_config(name, sets, plugins)
    folder = run_dir or Path(config.run.dir) / new_run_id(config.run.name)
    if has_run(RunDir(folder).store):  # a store that was not finished is none: whoever made it was killed before it began
        raise RunDirError(
            "there is a run here already", where=str(folder), todo="continue it with --resume, or choose another folder"
        )
    return config, folder


def _resumed(name: str | None, sets: list[str], plugins: list[str], run_dir: Path | None) -> tuple[RunConfig, Path]:
    """The stored config of the run to continue, with the overrides that a resumed run may have."""
    from spade_agentic.config.load import load_config
    from spade_agentic.errors import ConfigError, RunDirError
    from spade_agentic.runs.layout import RunDir

    if run_dir is None:
        run_dir = _newest_run(load_config(name, sets, plugins)) if name is not None else _newest_in(Path("runs"), None)
    stored_file = RunDir(run_dir).config
    if not stored_file.is_file():
        raise RunDirError(
            "there is no run to resume", where=str(run_dir), todo="name its folder with --run-dir, or start without --resume"
        )
    stored = load_config(stored_file)
    wanted = load_config(stored_file if name is None else name, sets, plugins)
    changed = [path for path in _differences(stored.to_data(), wanted.to_data()) if not path.startswith(MAY_CHANGE)]
    if changed:
        raise ConfigError(
            f"a resumed run cannot change {', '.join(changed)}",
            where=f"{wanted.where(changed[0])}, against {stored_file}",
            todo="leave the config's name out to take the stored one (--resume --run-dir DIR), or start a new run",
        )
    _refuse_finished(run_dir, wanted.run.steps)
    return wanted, run_dir


def _refuse_finished(run_dir: Path, steps: int) -> None:
    """A run that has taken all of its steps and measured the last one has nothing to go on with."""
    from spade_agentic.errors import RunDirError
    from spade_agentic.runs import show_run

    run = show_run(run_dir)
    if run.status == "finished" and run.steps >= steps:
        raise RunDirError(
            f"this run is finished: it has taken {run.steps} steps of {steps}", where=str(run_dir),
            todo=f"give it more with --set run.steps={2 * run.steps}, read it with spade-agentic runs report, or start another",
        )


def _newest_run(config: RunConfig) -> Path:
    return _newest_in(Path(config.run.dir), config.run.name)


def _newest_in(root: Path, name: str | None) -> Path:
    """The run below ``root`` (called ``name``, where given) that worked last."""
    from spade_agentic.config.load import load_config
    from spade_agentic.errors import RunDirError
    from spade_agentic.runs.layout import RunDir, run_dirs

    found = [folder for folder in run_dirs(root) if RunDir(folder).config.is_file()]
    if name is not None:
        found = [folder for folder in found if load_config(RunDir(folder).config).run.name == name]
    if not found:
        called = f" called {name!r}" if name else ""
        raise RunDirError(
            f"there is no run{called} to resume", where=str(root), todo="name its folder with --run-dir"
        )
    return max(found, key=lambda folder: RunDir(folder).store.stat().st_mtime)


def _differences(a: Any, b: Any, path: str = "") -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [*a, *(k for k in b if k not in a)]
        return [d for k in keys for d in _differences(a.get(k), b.get(k), f"{path}.{k}" if path else k)]
    return [] if a == b else [path]


def _print_plan(resolved: ResolvedRun, run_dir: Path, as_json: bool) -> None:
    from spade_agentic.config.load import config_to_yaml

    cost = resolved.cost
    if as_json:
        emit_json(
            {
                "run_dir": run_dir, "model_dir": resolved.model_dir, "config": resolved.config.to_data(),
                "plugins": [part.summary() for part in resolved.parts], "cost": cost,
            }
        )
        return
    say(config_to_yaml(resolved.config).rstrip())
    say()
    print_table(
        ("where", "plugin", "name", "options"),
        [
            (p.path, p.plugin, p.factory.name, ", ".join(f"{k}={v}" for k, v in p.options.model_dump(mode="json").items()))
            for p in resolved.parts
        ],
        title="Plugins",
    )
    play = resolved.config.selfplay
    step = f"{play.environments} environments x {play.seeds} seeds x {play.repeats} repeats"
    hinted_steps = resolved.config.run.steps if play.hinted == "every_step" else cost.intervals
    print_table(
        ("what", "how many", "from"),
        [
            ("plain plays", f"{cost.plain_plays:,}", f"{resolved.config.run.steps} steps x {step}"),
            ("hinted plays", f"{cost.hinted_plays:,}", f"{hinted_steps} steps x {step}"),
            ("drafts", f"{cost.drafts_min:,} to {cost.drafts_max:,}", f"{cost.rounds} rounds, 1 to {play.attempts} each slot"),
            ("hints", f"at most {cost.hints:,}", f"{cost.rounds} rounds x {play.environments} environments"),
            ("evaluations", cost.evaluations, "before, after, and between as evaluation.every says"),
            ("sampled tokens", f"at most {cost.tokens_max:,}", "whole contexts, all attempts"),
            ("sampled tokens", f"about {cost.tokens_estimate:,}", "plays of four turns, half of max_tokens each"),
        ],
        title="Cost",
    )
    say(f"model: {resolved.model_dir}")
    say(f"run directory: {run_dir} (not made: this is a dry run)")


def _print_summary(summary: Any, run_dir: Path, as_json: bool) -> None:
    """``summary`` is a RunSummary; ``report_run`` renders the same run for people."""
    from spade_agentic.runs import report_run

    if as_json:
        emit_json(summary)
    else:
        say(report_run(run_dir).rstrip())
