"""``bench ablation``: what each part of the method is worth, as a table of runs at equal plays."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .configs import Sets
from .output import Command, Group, Json, Plugins, emit_json, print_table, say

if TYPE_CHECKING:
    from spade_agentic.bench.cells import Cell
    from spade_agentic.bench.job import Job

app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode=None, help="Measure: tables of runs.")


@app.callback()
def _root() -> None:
    """A group, although it has one command."""


@app.command(cls=Command)
def ablation(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Shipped ablations or YAMLs of your own. Default: every shipped one."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="N,N...", help="Seeds that each config is run with. Default: 0,1,2.")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Folder of the table: its runs, table.json and table.md.")
    ] = Path("runs/ablation"),
    sets: Sets = None,
    plugin: Plugins = None,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, help="Runs at the same time.")] = 1,
    background: Annotated[bool, typer.Option("--background", help="Go on without this terminal, and return at once.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print the table of what is there, and run nothing.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the shipped ablations, and run nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Run configs times seeds at equal plays, and print what each reached, with intervals.

    Every cell is an ordinary run below --dir. The same command again goes on after whatever ended it: finished cells are
    skipped, half-done ones resumed.
    """
    from spade_agentic.bench.cells import plan_cells, shipped_ablations, stored_cells

    if list_:
        _print_list(as_json)
        return
    numbers = None if seeds is None else _numbers(seeds)
    if show:
        _print(stored_cells(folder, names or (), numbers), as_json)
        return
    chosen = names or [shipped.name for shipped in shipped_ablations()]
    cells = plan_cells(chosen, [0, 1, 2] if numbers is None else numbers, folder, sets=sets or (), plugins=plugin or ())
    _check(cells)
    if background:
        words = [*(names or ()), "--jobs", str(jobs), *(["--seeds", seeds] if seeds is not None else [])]
        for option, values in (("--set", sets), ("--plugin", plugin)):
            words += [word for value in values or () for word in (option, value)]
        _in_background(folder, words)
        return
    job = _run(cells, folder, sets or (), plugin or (), jobs, as_json)
    _print(cells, as_json, folder)
    _end(job, folder)


def _numbers(text: str) -> list[int]:
    from spade_agentic.errors import ConfigError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ConfigError("seeds are whole numbers with commas between them", where=f"--seeds {text}", todo="try --seeds 0,1,2")
    return [int(part) for part in parts]


def _check(cells: Sequence[Cell]) -> None:
    """Every plugin and option of every config, before the first run takes its minutes."""
    from spade_agentic.hooks.manager import PluginManager
    from spade_agentic.hooks.resolution import resolve_run

    for config in {cell.name: cell.config for cell in cells}.values():
        resolve_run(config, PluginManager.load(config.plugins))


def _run(
    cells: Sequence[Cell], folder: Path, sets: Sequence[str], plugins: Sequence[str], jobs: int, as_json: bool
) -> Job:
    from spade_agentic.bench.job import run_cells
    from spade_agentic.bench.table import make_table, write_table

    number = {cell.label: index for index, cell in enumerate(cells, start=1)}

    def report(cell: Cell, text: str) -> None:
        line = f"[{number[cell.label]}/{len(cells)}] {cell.label}: {text}"
        sys.stderr.write(line + "\n") if as_json else say(line)
        sys.stdout.flush()

    return run_cells(
        cells, folder, jobs=jobs, sets=sets, plugins=plugins, report=report,
        finished=lambda: write_table(make_table(cells), folder),
    )


def _in_background(folder: Path, words: Sequence[str]) -> None:
    """The same command in a session of its own; what it says goes into a file."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "bench.log"
    command = [sys.executable, "-m", "spade_agentic.cli.main", "bench", "ablation", *words, "--dir", str(folder)]
    with log.open("ab") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    say(f"process {process.pid} goes on in the background")
    say(f"what it says: {log}")
    say(f"the table so far: spade-agentic bench ablation --show --dir {shlex.quote(str(folder))}")
    say(f"stop it: kill {process.pid} (the same command goes on from there)")


def _print_list(as_json: bool) -> None:
    from spade_agentic.bench.cells import shipped_ablations

    shipped = shipped_ablations()
    if as_json:
        emit_json([{"name": s.name, "config": s.config, "doc": s.doc, "plays": s.cost.plays, "cost": s.cost} for s in shipped])
        return
    print_table(
        ("name", "plays", "rounds", "what it is"), [(s.name, f"{s.cost.plays:,}", s.cost.rounds, s.doc) for s in shipped]
    )


def _print(cells: Sequence[Cell], as_json: bool, folder: Path | None = None) -> None:
    from spade_agentic.bench.table import make_table, table_text, write_table

    made = make_table(cells)
    if folder is not None:
        write_table(made, folder)
    if as_json:
        emit_json(made.to_json())
    else:
        say("\n" + table_text(made).rstrip())


def _end(job: Job, folder: Path) -> None:
    """An exit code that says whether the table is whole."""
    from spade_agentic.errors import SpadeError

    if job.stopped is not None:
        sys.stderr.write(f"stopped by {job.stopped.name}; the same command goes on from there\n")
        raise typer.Exit(128 + job.stopped)
    if job.failed:
        raise SpadeError(
            f"{len(job.failed)} runs are not finished: "
            + "; ".join(f"{label} {why}" for label, why in job.failed.items())
            + f"\n  in: {folder}\n  do: see what they printed; the same command tries them again"
        )
