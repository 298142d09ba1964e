"""``bootstrap``: rebuild the shipped model from nothing but this package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import Json, debugging, emit_json, say

__all__ = ["bootstrap"]


def bootstrap(
    output: Annotated[Path, typer.Option("--output", metavar="DIR", help="Folder to write the model to; must be empty.")],
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of everything that is drawn.")] = 0,
    as_json: Json = False,
) -> None:
    """Build spade-tiny: its tokenizer, its demonstrations and its weights (minutes on two cores)."""
    from spade_agentic.errors import UserError

    if output.exists() and not output.is_dir():
        raise UserError("the output is not a folder", where=str(output), todo="name a new folder with --output")
    if output.is_dir() and any(output.iterdir()):
        raise UserError("the output folder is not empty", where=str(output), todo="name a new folder, or empty this one")

    from spade_agentic.bootstrap.cli import run_bootstrap

    from .logs import configure_logs

    configure_logs(debug=debugging())
    report = run_bootstrap(output, seed=seed)
    if as_json:
        emit_json({"output": output, "seed": seed, "report": report})
    else:
        say(str(report))
