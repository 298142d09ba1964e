"""``config show|schema|validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import Command, Group, Json, Plugins, emit_json, say

app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode=None, help="Look at run configurations.")

Name = Annotated[str, typer.Argument(metavar="NAME.yaml", help="A local file, or the name of a shipped config.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="a.b=c", help="Override one value (YAML). Repeatable.")
]


@app.command(cls=Command)
def show(name: Name = "tooluse.yaml", sets: Sets = None, plugin: Plugins = None, as_json: Json = False) -> None:
    """Print a run with every default filled in."""
    from spade_agentic.config.load import config_to_yaml, load_config

    config = load_config(name, sets or (), plugin or ())
    if as_json:
        emit_json(config.to_data())
    else:
        say(config_to_yaml(config).rstrip())


@app.command(cls=Command)
def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="As the reference page of the documentation.")] = False,
    output: Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write to this file.")] = None,
) -> None:
    """Print the JSON schema of a run, for editors; or the reference page."""
    import json

    from spade_agentic.config.reference import reference_page
    from spade_agentic.config.schema import RunConfig

    text = reference_page() if markdown else json.dumps(RunConfig.model_json_schema(), indent=2) + "\n"
    if output is None:
        say(text.rstrip())
    else:
        output.write_text(text, encoding="utf-8")


@app.command(cls=Command)
def validate(name: Name = "tooluse.yaml", sets: Sets = None, plugin: Plugins = None, as_json: Json = False) -> None:
    """Check a run: its keys, its plugins, every option, the model folder."""
    from spade_agentic.config.load import load_config
    from spade_agentic.hooks.manager import PluginManager
    from spade_agentic.hooks.resolution import resolve_run

    config = load_config(name, sets or (), plugin or ())
    manager = PluginManager.load(config.plugins)
    resolved = resolve_run(config, manager)
    if as_json:
        emit_json({"valid": True, "name": name, "plugins": [part.summary() for part in resolved.parts]})
    else:
        say(f"{name} is valid: {len(resolved.parts)} plugins resolved")
