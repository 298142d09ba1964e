"""The contract tests on a whole plugin: every factory is built with its options and checked against the rules of its kind."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spade_agentic.config.schema import PluginRef, RunConfig
from spade_agentic.errors import UserError
from spade_agentic.hooks.manager import BuildContext, PluginManager
from spade_agentic.hooks.specs import FACTORY_HOOKS

from .contracts import run_contract
from .rules import RuleResult

if TYPE_CHECKING:
    from pydantic import BaseModel

    from spade_agentic.hooks.kinds import Factory

__all__ = ["check_plugin"]

NEEDS_MODEL = ("inference_engine", "learner")


def check_plugin(manager: PluginManager, name: str, sets: Sequence[str] = ()) -> list[RuleResult]:
    """Run every rule on every factory of the plugin ``name``; what does not hold is in the results.

    ``sets`` are ``"factory.key=value"``: options to build with. Raises :class:`UserError` for one that names no factory
    of this plugin, and :class:`PluginError` where a factory hook itself is broken.
    """
    options = _options(sets)
    found = [
        (hook, factory) for hook in FACTORY_HOOKS for factory in manager.factories(hook).values()
        if manager.owner(hook, factory.name).name == name
    ]  # fmt: skip
    unknown = sorted(set(options) - {factory.name for _, factory in found})
    if unknown:
        known = ", ".join(factory.name for _, factory in found) or "none"
        raise UserError(f"plugin {name!r} has no factory {unknown[0]!r}", where=f"--set {unknown[0]}", todo=f"it has: {known}")
    hooks = manager.hooks_of(name)
    results = [RuleResult(name, f"It is loaded and its hooks fit: {', '.join(hooks)}", True)]
    for hook, factory in found:
        results += _check_factory(manager, hook, factory, options.get(factory.name, {}))
    return results


def _check_factory(
    manager: PluginManager, hook: str, factory: Factory[Any], options: Mapping[str, Any]
) -> list[RuleResult]:
    subject = f"{hook} {factory.name}"
    try:
        resolved = manager.resolve(hook, PluginRef(name=factory.name, options=dict(options)))[1]
    except UserError as error:
        return [RuleResult(subject, "It can be built with these options", False, str(error))]
    said = "" if factory.doc.strip() else "doc is empty"
    documented = RuleResult(subject, "It says in one line what it is", not said, said)
    with tempfile.TemporaryDirectory(prefix="spade-agentic-") as folder:
        config = RunConfig()
        if hook in NEEDS_MODEL:
            from .models import tiny_model

            data = config.to_data()
            data["model"]["path"] = str(tiny_model(Path(folder) / "model"))
            config = RunConfig.model_validate(data)
        return [documented, *run_contract(hook, _maker(manager, factory, resolved, config), subject=subject)]


def _maker(
    manager: PluginManager, factory: Factory[Any], options: BaseModel, config: RunConfig
) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        return factory.build(options, BuildContext(run_dir=folder, run_seed=0, config=config, manager=manager))

    return make


def _options(sets: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Options by factory. Nested keys have further dots."""
    from spade_agentic.config.yaml_source import parse_value

    found: dict[str, dict[str, Any]] = {}
    for item in sets:
        path, equals, text = item.partition("=")
        factory, *keys = path.strip().split(".")
        if not equals or not factory or not keys or not all(keys):
            raise UserError("an option must look like FACTORY.key=value", where=f"--set {item}", todo="mend it")
        target = found.setdefault(factory, {})
        for key in keys[:-1]:
            target = target.setdefault(key, {})
        target[keys[-1]] = parse_value(text, where=f"--set {item}")
    return found
