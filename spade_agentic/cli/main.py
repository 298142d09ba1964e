"""The entry point ``spade-agentic``: puts the command groups together and turns errors into exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import spade_agentic

from . import bench, bootstrap, configs, doctor, envs, plugins, runs, train
from .output import Command, Group, report_error, say

__all__ = ["app", "main"]

app = typer.Typer(
    name="spade-agentic",
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="One language model designs its own tool-use training worlds and learns to act in them.",
)


def _version(value: bool) -> None:
    if value:
        say(f"spade-agentic {spade_agentic.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


app.command("train", cls=Command)(train.train)
app.add_typer(configs.app, name="config")
app.add_typer(plugins.app, name="plugin")
app.add_typer(envs.app, name="env")
app.add_typer(runs.app, name="runs")
app.add_typer(bench.app, name="bench")
app.command("doctor", cls=Command)(doctor.doctor)
app.command("bootstrap", cls=Command)(bootstrap.bootstrap)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0, 2 for a user's mistake, 1 for a fault of ours, 130 when interrupted."""
    try:
        app(args=None if arguments is None else list(arguments))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nobody is left to tell.
        sys.stderr.close()
        sys.exit(141)
    except Exception as error:
        sys.exit(report_error(error))


if __name__ == "__main__":
    main()
