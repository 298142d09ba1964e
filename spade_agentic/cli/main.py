"""The entry point ``spade-agentic``: puts the command groups together and turns errors into exit codes."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

import spade_agentic

from . import bench, bootstrap, configs, doctor, envs, plugins, runs, train
from .output import INTERRUPTED, Command, Group, report_error, say

__all__ = ["app", "main"]

READER_GONE = 141
"""Exit code where nobody reads what is printed any more; a shell gives what SIGPIPE killed the same."""

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
    _say_anything()
    try:
        try:
            app(args=None if arguments is None else list(arguments))
        finally:
            sys.stdout.flush()
    except SystemExit as ending:
        if isinstance(ending.__context__, BrokenPipeError):  # click ends with 1 then, like after any error
            _nobody_reads()
        raise
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.EIO) and error.filename is None:
            _nobody_reads()
        sys.exit(report_error(error))


def _nobody_reads() -> NoReturn:
    """The reader of our output went away (`| head`), or the terminal: Python's own last flush must not try again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(READER_GONE)


def _say_anything() -> None:
    """What the terminal's encoding lacks is escaped, where it would be an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
