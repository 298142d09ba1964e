"""What every command shares: printing as table or JSON, and reporting errors."""

from __future__ import annotations

import dataclasses
import functools
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from spade_agentic.errors import SpadeError, UserError

__all__ = ["INTERRUPTED", "Command", "Group", "Json", "Plugins", "debugging", "emit_json", "print_table", "report_error", "say"]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Plugins = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="FILE", help="Also load this plugin: a file, a folder or a module. Repeatable."),
]

INTERRUPTED = 130
"""Exit code of what a signal ended; a shell gives a command that Ctrl-C killed the same."""

_state = {"debug": False}


def _set_debug(value: bool) -> bool:
    _state["debug"] = _state["debug"] or bool(value)
    return value


@functools.cache
def _debug_option() -> Any:
    """The option ``--debug``, made by typer itself: what it is made of differs from version to version."""

    def command(
        debug: Annotated[
            bool, typer.Option("--debug", callback=_set_debug, help="Show the traceback of an error.")
        ] = False,
    ) -> None: ...

    probe = typer.Typer(add_completion=False)
    probe.command()(command)
    option = typer.main.get_command(probe).params[0]
    option.expose_value = False
    return option


def debugging() -> bool:
    """Whether ``--debug`` was given."""
    return _state["debug"]


class Command(TyperCommand):
    """A command that also takes ``--debug``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_debug_option())


class Group(TyperGroup):
    """A group whose commands stand in the order they were written."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


# --- printing ----------------------------------------------------------------------------------------------------------------


def say(text: str = "") -> None:
    """One line on standard output, plain."""
    # A lone surrogate (a policy may say anything) cannot be encoded; its escape can, and is valid in JSON too.
    sys.stdout.write(text.encode(errors="backslashreplace").decode() + "\n")


def emit_json(data: Any) -> None:
    """``data`` as one indented JSON document on standard output."""
    import json

    say(json.dumps(_jsonable(data), indent=2, ensure_ascii=False, allow_nan=False))


def _jsonable(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _jsonable({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {str(k): _jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_jsonable(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None  # JSON has no such number
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return str(value)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """A plain table on standard output; nothing is cut off where output is not a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    console.print(table)


# --- errors ------------------------------------------------------------------------------------------------------------------


def report_error(error: BaseException) -> int:
    """Say on standard error what happened, to which object, and what to do. Returns the exit code."""
    if debugging():
        traceback.print_exception(error)
    code = _report(error)
    if not debugging():  # a traceback shows them
        for note in getattr(error, "__notes__", ()):
            _stderr(f"  {note}")
    return code


def _report(error: BaseException) -> int:
    if isinstance(error, UserError):
        _stderr(f"error: {error}")
        return 2
    if isinstance(error, SpadeError):
        _stderr(f"error: {type(error).__name__}: {error}")
        if not debugging():
            _stderr("  do: run it again with --debug to see where")
        return 1
    _stderr(f"internal error: {type(error).__name__}: {error}")
    _stderr("  in: spade-agentic itself, or a plugin")
    if not debugging():
        _stderr("  do: run it again with --debug and report what it prints")
    return 1


def _stderr(text: str) -> None:
    sys.stderr.write(text + "\n")
