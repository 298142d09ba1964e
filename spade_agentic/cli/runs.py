"""``runs list|show|watch|report|compare``: runs that were made, and the one that goes on now."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import Command, Group, Json, emit_json, print_table, say

if TYPE_CHECKING:
    from spade_agentic.runs.reader import StoreReader
    from spade_agentic.runs.summary import RunSummary

app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode=None, help="Look at runs.")

Root = Annotated[Path, typer.Option("--root", metavar="DIR", help="Folder that holds the run directories.")]
Name = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's folder, its name or the beginning of it, or `latest`.")
]
Html = Annotated[bool, typer.Option("--html", help="Write a page for a browser, and print where it is.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where --html writes the page.")]
RUNS = Path("runs")


@app.command("list", cls=Command)
def list_(root: Root = RUNS, as_json: Json = False) -> None:
    """List the runs, newest first, with held-out success before and after."""
    from spade_agentic.runs import list_runs
    from spade_agentic.runs.live import duration

    runs = list_runs(root)
    if as_json:
        emit_json(runs)
    elif not runs:
        say(f"no runs in {root}")
    else:
        print_table(
            ("run", "status", "steps", "held-out sampled", "held-out greedy", "time", "begun"),
            [
                (
                    r.run_id, r.status, f"{r.steps}/{r.steps_planned}", _before_after(r.heldout),
                    _before_after(r.heldout_greedy), duration(r.wall_s), r.created_at,
                )
                for r in runs
            ],
        )
        for run in runs:
            if run.error is not None:
                say(f"{run.run_dir}: {run.error}")


@app.command(cls=Command)
def show(
    name: Name = "latest",
    root: Root = RUNS,
    step: Annotated[int | None, typer.Option("--step", help="Also list the plays of this step.")] = None,
    play: Annotated[str | None, typer.Option("--play", metavar="ID", help="Print the transcript of this play.")] = None,
    as_json: Json = False,
) -> None:
    """Show one run step by step, the plays of one of its steps, or one play in full."""
    from spade_agentic.errors import UserError
    from spade_agentic.runs import StoreReader, find_run, show_run
    from spade_agentic.runs.transcripts import transcript

    run_dir = find_run(name, root)
    with StoreReader(run_dir) as reader, reader.snapshot():
        if play is not None:
            text = transcript(reader.play(play).play)
            emit_json(text) if as_json else _print_transcript(text)
            return
        summary, steps = show_run(run_dir), _steps(reader)
        if step is not None and step not in {s["step"] for s in steps}:
            raise UserError(
                f"step {step} is not committed in this run", where=str(run_dir),
                todo=f"name one from 1 to {len(steps)}" if steps else "wait for its first step",
            )
        plays = None if step is None else [transcript(row.play) for row in reader.plays(step=step)]
    if as_json:
        shown = {} if plays is None else {"plays": [{k: v for k, v in p.items() if k != "messages"} for p in plays]}
        emit_json({"run": summary, "steps": steps, **shown})
        return
    _print_run(summary, steps)
    if plays is not None:
        print_table(
            ("play", "arm", "seed", "return", "stop", "turns", "tokens"),
            [(p["play_id"], p["arm"], p["seed"], p["reward"], p["stop"], p["turns"], p["sampled_tokens"]) for p in plays],
            title=f"Plays of step {step}",
        )


@app.command(cls=Command)
def watch(
    name: Name = "latest",
    root: Root = RUNS,
    once: Annotated[bool, typer.Option("--once", help="Look once instead of following the run to its end.")] = False,
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Time between two looks.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document a line, one for each look.")] = False,
) -> None:
    """Follow a run from another terminal: every play in flight with its stage, time and last progress, and what happened."""
    from spade_agentic.runs import find_run, watch_run

    run_dir = find_run(name, root)
    if sys.stdout.isatty() and not once and not as_json:
        _watch_on_screen(run_dir, every)
        return
    for update in watch_run(run_dir, follow=not once, every_s=every):
        if as_json:
            look = {"running": update.running, "age_s": update.age_s, "status": update.status, "events": update.events}
            say(json.dumps(look, ensure_ascii=False))
        else:
            say(str(update))
        sys.stdout.flush()


def _watch_on_screen(run_dir: Path, every_s: float) -> None:
    """The same, redrawn in place: events scroll by above what is in flight, as far as that fits."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from spade_agentic.runs import watch_run

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        for update in watch_run(run_dir, every_s=every_s, idle_s=every_s):
            for line in update.event_lines():
                live.console.print(Text(line))
            room = console.height - 4  # the status, the heads, what is left out, and the line of the cursor
            live.update(Text("\n".join(update.lines(most=room)), no_wrap=True, overflow="ellipsis"), refresh=True)


@app.command(cls=Command)
def report(
    name: Name = "latest",
    root: Root = RUNS,
    html: Html = False,
    output: Output = None,
    gallery: Annotated[
        int | None, typer.Option("--gallery", metavar="N", min=0, help="Environments shown on the page. Default: 12.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Sum a run up: success before and after with intervals, the paired difference, regret, drafts, time, paths.

    With --html as one self-contained page, with curves and a gallery of environments, in the run's folder or in --output.
    """
    from spade_agentic.runs import find_run, report_data, report_run

    _only_with_html(html, output=output, gallery=gallery)
    run_dir = find_run(name, root)
    page = {}
    if html:
        from spade_agentic.runs.html import GALLERY, write_report
        from spade_agentic.runs.layout import RunDir

        target = output or RunDir(run_dir).report
        with _writing(target):
            page = {"html": write_report(run_dir, target, gallery=GALLERY if gallery is None else gallery)}
    if as_json:
        emit_json(report_data(run_dir) | page)
    else:
        say(str(page["html"]) if html else report_run(run_dir).rstrip())


@app.command(cls=Command)
def compare(
    names: Annotated[
        list[str], typer.Argument(metavar="RUN RUN...", help="Two runs or more; the others are compared with the first.")
    ],
    root: Root = RUNS,
    html: Html = False,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Compare runs: success and paired differences with intervals, regret, plays, tokens, time, and keys that differ.

    With --html as one self-contained page, in comparison.html or in --output.
    """
    from spade_agentic.runs import compare_runs, comparison_text, find_run, write_comparison

    _only_with_html(html, output=output)
    run_dirs = [find_run(name, root) for name in names]
    comparison = compare_runs(run_dirs)
    page = {}
    if html:
        target = output or Path("comparison.html")
        with _writing(target):
            page = {"html": write_comparison(run_dirs, target)}
    if as_json:
        emit_json(comparison.to_json() | page)
    else:
        say(str(page["html"]) if html else comparison_text(comparison).rstrip())


def _only_with_html(html: bool, **options: Any) -> None:
    """An option that would do nothing is a mistake, not a wish."""
    from spade_agentic.errors import ConfigError

    for option, value in options.items():
        if value is not None and not html:
            raise ConfigError(f"--{option} is about the page, and none is made", where=f"--{option} {value}", todo="add --html")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A page that cannot be written is the user's to mend: another folder, more room."""
    from spade_agentic.errors import RunDirError

    try:
        yield
    except OSError as error:
        raise RunDirError(
            f"the page cannot be written: {error.strerror or error}", where=str(path), todo="choose another file with --output"
        ) from error


def _before_after(pair: dict[str, float | None]) -> str:
    before, after = ("-" if value is None else f"{value:.3f}" for value in (pair["before"], pair["after"]))
    return f"{before} -> {after}"


def _steps(reader: StoreReader) -> list[dict[str, Any]]:
    """Every committed step: its metrics, and its plays by arm."""
    steps: dict[int, dict[str, Any]] = {
        row.step: {"step": row.step, "elapsed_s": row.elapsed_s, "metrics": row.metrics, "plays": {}}
        for row in reader.metrics()
    }
    for counts in reader.play_counts():
        steps[counts["step"]]["plays"][counts["arm"]] = {k: v for k, v in counts.items() if k not in ("step", "arm")}
    return list(steps.values())


def _print_run(run: RunSummary, steps: list[dict[str, Any]]) -> None:
    from spade_agentic.evals.heldout import RESERVED_RATES
    from spade_agentic.runs.live import duration
    from spade_agentic.runs.report import audit_line, with_interval

    say(f"{run.run_id}: {run.status}, {run.steps} of {run.steps_planned} steps in {duration(run.wall_s)}")
    print_table(
        ("step", "time", "plays", "void", "plain success", "hinted success", "sampled tokens", "breaches"),
        [
            (
                s["step"], duration(s["elapsed_s"]), _total(s, "plays"), _total(s, "void"),
                _success(s["plays"].get("plain")), _success(s["plays"].get("hinted")), _total(s, "sampled_tokens"),
                f"{s['metrics']['audit/breaches']:g}" if "audit/breaches" in s["metrics"] else "-",
            )
            for s in steps
        ],
    )
    for rate, pair in (("sampled", run.heldout), ("greedy", run.heldout_greedy)):
        say(f"held-out {rate}: {_before_after(pair)}")
    for rate in (rate for rate in RESERVED_RATES if rate in run.evaluation):
        before, after = (with_interval(run.evaluation[rate][when]) for when in ("before", "after"))
        say(f"reserved domains, {rate.rpartition('/')[2]}: {before} -> {after}")
    for when, regret in run.regret.items():
        say(f"regret, {when} round: " + ("-" if regret is None else f"{regret['mean']:+.3f} ± {regret['stderr']:.3f}"))
    say(audit_line(run))
    for what, path in run.paths.items():
        say(f"{what}: {path}")
    say(f"more: spade-agentic runs report {run.run_dir}")


def _total(step: dict[str, Any], key: str) -> int:
    return sum(arm[key] for arm in step["plays"].values())


def _success(arm: dict[str, Any] | None) -> str:
    counted = 0 if arm is None else arm["plays"] - arm["void"]
    return f"{arm['wins'] / counted:.3f}" if arm is not None and counted else "-"


def _print_transcript(text: dict[str, Any]) -> None:
    from spade_agentic.runs.visible import visible

    say(visible(f"{text['play_id']}: {text['arm']}, seed {text['seed']}, return {text['reward']}, {text['stop']}"))
    for message in text["messages"]:
        outcome = f" ({message['outcome']})" if "outcome" in message else ""
        say(visible(f"\n--- {message['role']}{outcome}\n{message['content']}"))
