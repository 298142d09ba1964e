"""``plugin list|new|check``: see what is installed, start a plugin, run the contract tests on one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .logs import configure_logs
from .output import Command, Group, Json, Plugins, debugging, emit_json, print_table, say

if TYPE_CHECKING:
    from spade_agentic.hooks.manager import PluginManager

__all__ = ["app"]

app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode=None, help="List, start and check plugins.")


@app.command("list", cls=Command)
def list_(
    kind: Annotated[str | None, typer.Option("--kind", metavar="HOOK", help="Only factories of this hook.")] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """List every plugin with its factories and options; broken ones with what is wrong."""
    from spade_agentic.hooks.manager import PluginManager
    from spade_agentic.hooks.specs import FACTORY_HOOKS

    hooks = FACTORY_HOOKS if kind is None else (known_kind(kind),)
    problems: list[Any] = []
    manager = PluginManager.load(plugin or (), problems=problems)
    factories = [_factory_data(manager, hook, name) for hook in hooks for name in manager.factories(hook)]
    if as_json:
        broken = [{"what": p.what, "where": p.where, "todo": p.todo} for p in problems]
        emit_json({"factories": factories, "plugins": _plugin_data(manager), "broken": broken})
        return
    rows = [(f["kind"], f["name"], f["plugin"], f["doc"], ", ".join(o["name"] for o in f["options"])) for f in factories]
    print_table(("kind", "name", "plugin", "what it is", "options"), rows)
    for problem in problems:
        say(f"broken: {problem}")


def _factory_data(manager: PluginManager, hook: str, name: str) -> dict[str, Any]:
    from spade_agentic.config.reference import option_rows
    from spade_agentic.hooks.manager import HOOK_PATHS

    factory, owner = manager.factories(hook)[name], manager.owner(hook, name)
    options = [{"name": o.name, "type": o.kind, "default": o.default, "doc": o.doc} for o in option_rows(factory.options)]
    return {
        "kind": hook, "name": name, "plugin": owner.name, "source": owner.source, "third_party": owner.third_party,
        "doc": factory.doc, "config": HOOK_PATHS[hook], "options": options,
    }


def _plugin_data(manager: PluginManager) -> list[dict[str, Any]]:
    return [
        {"name": p.name, "source": p.source, "third_party": p.third_party, "hooks": manager.hooks_of(p.name)}
        for p in manager.plugins.values()
    ]


def known_kind(kind: str) -> str:
    """``kind`` as the name of a factory hook. Raises :class:`UserError` naming the nearest one."""
    from spade_agentic.config.suggest import did_you_mean
    from spade_agentic.errors import UserError
    from spade_agentic.hooks.specs import FACTORY_HOOKS

    name = kind.replace("-", "_")
    if name not in FACTORY_HOOKS:
        raise UserError(f"there is no kind of plugin {kind!r}", where=kind, todo=did_you_mean(kind, FACTORY_HOOKS, noun="kind"))
    return name


@app.command(cls=Command)
def new(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The hook it implements, such as env_designer or tool_sim.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the plugin, as the YAML will say it.")],
    output: Annotated[Path | None, typer.Option("--output", metavar="DIR", help="Folder to write. Default: ./NAME.")] = None,
    as_json: Json = False,
) -> None:
    """Write a plugin that works, with its tests: change it from there."""
    from spade_agentic.testing.skeleton import write_plugin

    folder = output or Path(name)
    files = write_plugin(known_kind(kind), name, folder)
    if as_json:
        emit_json({"folder": folder, "files": [str(file.relative_to(folder)) for file in files]})
        return
    for file in files:
        say(f"wrote {file}")
    say(f"\nnext:\n  spade-agentic plugin check {folder}\n  python -m pytest {folder}    (needs pip install pytest)")
    say(f"  pip install -e {folder}")


@app.command(cls=Command)
def check(
    target: Annotated[str, typer.Argument(metavar="NAME|PATH", help="An installed plugin, or a file, folder or module.")],
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FACTORY.key=value", help="An option to build a factory with. Repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the contract tests on a plugin: what every plugin of its kind must satisfy. Exit code 2 where one fails."""
    from spade_agentic.errors import PluginError
    from spade_agentic.hooks.manager import PluginManager
    from spade_agentic.testing.checking import check_plugin

    configure_logs(debug=debugging())
    problems: list[PluginError] = []
    manager = PluginManager.load(problems=problems)
    names = [target] if target in manager.plugins else _load_target(manager, target, problems)
    results = [result for name in names for result in check_plugin(manager, name, sets or ())]
    failed = [result for result in results if not result.passed]
    if as_json:
        emit_json({"target": target, "passed": not failed, "rules": results})
    else:
        for result in results:
            say(f"{'ok  ' if result.passed else 'FAIL'} {result.subject}: {result.rule}")
            if result.detail:
                say("       " + result.detail.replace("\n", "\n       "))
        say(f"{len(results) - len(failed)} of {len(results)} rules hold")
    if failed:
        raise typer.Exit(2)


def _load_target(manager: PluginManager, target: str, problems: list[Any]) -> list[str]:
    """Load what ``target`` names. Raises :class:`PluginError`, the plugin's own one where it is installed but broken."""
    from spade_agentic.config.suggest import did_you_mean
    from spade_agentic.errors import PluginError
    from spade_agentic.hooks.loading import looks_like_path

    for problem in problems:
        if problem.what.startswith(f"plugin {target!r} "):
            raise problem
    if not looks_like_path(target) and not Path(target).exists() and "." not in target:
        raise PluginError(
            f"there is no plugin {target!r}",
            where=target,
            todo=did_you_mean(target, manager.plugins, noun="plugin") + "; or give the path of a file or folder",
        )
    loaded = manager.load_reference(target)
    return loaded or [name for name, info in manager.plugins.items() if info.source == target or _is_at(info.module, target)]


def _is_at(module: Any, target: str) -> bool:
    """Whether a registered module lives at this path (a plugin that is installed and named by its folder)."""
    file = getattr(module, "__file__", None)
    return file is not None and Path(target).resolve() in Path(file).resolve().parents
