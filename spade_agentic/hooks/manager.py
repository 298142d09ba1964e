"""The plugin manager: finds plugins, checks them, and calls their hooks.

Plugins come from the entry-point group ``spade_agentic``, from ``plugins:`` in the YAML and from ``--plugin``. A plugin
is a module with functions marked ``@hookimpl``. A plugin that is wrong is refused with an error that names the plugin,
the hook and the offending argument, before anything heavy starts.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pluggy
from pydantic import BaseModel, ValidationError

from spade_agentic.config.suggest import did_you_mean
from spade_agentic.config.validation import option_error
from spade_agentic.errors import ConfigError, PluginError, SpadeError

from . import kinds
from .answers import GO_ON
from .kinds import Factory, Options
from .loading import LoadedPlugin, load_reference
from .specs import FACTORY_HOOKS, LIFECYCLE_HOOKS, PROJECT, Specs

if TYPE_CHECKING:
    from spade_agentic.config.schema import PluginRef, RunConfig

__all__ = ["HOOK_PATHS", "BuildContext", "PluginInfo", "PluginManager"]

HOOK_PATHS: Mapping[str, str] = {
    "env_designer": "selfplay.designer",
    "hint_writer": "selfplay.hint_writer",
    "designer_reward": "selfplay.reward",
    "memory_store": "selfplay.memory",
    "curriculum": "selfplay.curriculum",
    "tool_sim": "tool_sims",
    "sandbox": "sandbox",
    "inference_engine": "engine",
    "learner": "learner",
    "tracker": "trackers",
    "evaluator": "evaluation",
}
"""Where the YAML names the plugin of each factory hook."""

KINDS: Mapping[str, type[Any]] = {
    "env_designer": kinds.Designer,
    "hint_writer": kinds.HintWriter,
    "designer_reward": kinds.DesignerReward,
    "memory_store": kinds.MemoryStore,
    "curriculum": kinds.Curriculum,
    "tool_sim": kinds.ToolSim,
    "sandbox": kinds.Sandbox,
    "inference_engine": kinds.InferenceEngine,
    "learner": kinds.Learner,
    "tracker": kinds.Tracker,
    "evaluator": kinds.Evaluator,
}
"""What the objects of each factory hook must be able to do."""

FIRST_PARTY = "spade-agentic"
OURS = Path(__file__).parents[1]
"""Code below it is ours; what it raises is no plugin's fault."""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What a factory may look at while it builds.

    ``run_dir`` is ``None`` where there is no run directory (a dry run, ``env check``). ``run_seed`` is the seed that every
    random choice of the plugin must derive from.
    """

    run_dir: Path | None
    run_seed: int
    config: RunConfig
    manager: PluginManager


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """One registered plugin. ``source`` is its distribution, or the file or module it was loaded from."""

    name: str
    module: ModuleType
    source: str
    third_party: bool

    @property
    def fatal(self) -> bool:
        """Whether an exception in one of its life-cycle hooks ends the run."""
        return not self.third_party or bool(getattr(self.module, "spade_agentic_fatal", False))


class PluginManager:
    """All plugins of one run.

    ``PluginManager.load()`` registers the installed plugins and those named by ``references``. ``hook_errors`` counts the
    exceptions of third parties' life-cycle hooks by ``(plugin, hook)``.
    """

    def __init__(self) -> None:
        self._pluggy = pluggy.PluginManager(PROJECT)
        self._pluggy.add_hookspecs(Specs)
        self._plugins: dict[str, PluginInfo] = {}
        self._factories: dict[str, dict[str, tuple[str, Factory[Any]]]] = {}
        self.hook_errors: Counter[tuple[str, str]] = Counter()

    @classmethod
    def load(
        cls, references: Iterable[str | Path] = (), *, base: Path | None = None, problems: list[PluginError] | None = None
    ) -> PluginManager:
        """A manager with every installed plugin, then every one of ``references`` (files, folders or module names).

        Relative files are looked up from ``base`` (default: the working directory). Raises :class:`PluginError` for a broken
        plugin; with a list as ``problems``, installed plugins that are broken are collected there and left out instead.
        """
        manager = cls()
        for entry in sorted(importlib.metadata.entry_points(group=PROJECT), key=lambda e: e.name):
            try:
                manager.register_entry_point(entry)
            except PluginError as error:
                if problems is None:
                    raise
                problems.append(error)
        for reference in references:
            manager.load_reference(reference, base=base)
        return manager

    # -- registering ----------------------------------------------------------------------------------------------------

    def register_entry_point(self, entry: importlib.metadata.EntryPoint) -> None:
        """Import and register one entry point. Raises :class:`PluginError`."""
        source = entry.dist.name if entry.dist is not None else entry.value
        try:
            module = entry.load()
        except Exception as error:
            raise PluginError(
                f"plugin {entry.name!r} cannot be imported: {type(error).__name__}: {error}",
                where=f"entry point {entry.name} = {entry.value} of {source}",
                todo=f"mend that module, or remove the package (pip uninstall {source})",
            ) from error
        self.register(module, entry.name, source=source, third_party=_normal(source) != FIRST_PARTY)

    def load_reference(self, reference: str | Path, *, base: Path | None = None) -> list[str]:
        """Load a plugin file, folder or module and register what it holds. Returns the plugins' names."""
        names = []
        for loaded in load_reference(reference, base=base or Path.cwd()):
            if self._is_registered(loaded):
                continue
            third_party = not loaded.module.__name__.startswith(("spade_agentic_plugins.", "spade_agentic_sims."))
            self.register(loaded.module, loaded.name, source=loaded.source, third_party=third_party)
            names.append(loaded.name)
        return names

    def _is_registered(self, loaded: LoadedPlugin) -> bool:
        return any(info.module is loaded.module for info in self._plugins.values())

    def register(self, module: ModuleType, name: str, *, source: str | None = None, third_party: bool = True) -> None:
        """Check ``module`` and register it as ``name``. Raises :class:`PluginError`."""
        source = source or getattr(module, "__file__", None) or module.__name__
        if name in self._plugins:
            raise PluginError(
                f"two plugins are called {name!r}",
                where=f"{self._plugins[name].source} and {source}",
                todo="rename one of them, or remove it",
            )
        check_hookimpls(module, name, source)
        self._pluggy.register(module, name=name)
        self._plugins[name] = PluginInfo(name=name, module=module, source=source, third_party=third_party)
        self._factories.clear()

    @property
    def plugins(self) -> dict[str, PluginInfo]:
        """Every registered plugin by name."""
        return dict(self._plugins)

    def hooks_of(self, plugin: str) -> list[str]:
        """Names of the hooks that ``plugin`` implements, in the order of the specifications."""
        return [
            hook
            for hook in (*FACTORY_HOOKS, *LIFECYCLE_HOOKS)
            if any(impl.plugin_name == plugin for impl in getattr(self._pluggy.hook, hook).get_hookimpls())
        ]

    # -- factories --------------------------------------------------------------------------------------------------------

    def factories(self, hook: str) -> dict[str, Factory[Any]]:
        """Every factory of ``hook`` by name. Raises :class:`PluginError` for a broken or doubled one."""
        return {name: factory for name, (_, factory) in self._factories_of(hook).items()}

    def owner(self, hook: str, name: str) -> PluginInfo:
        """The plugin that gives factory ``name`` of ``hook``."""
        return self._plugins[self._factories_of(hook)[name][0]]

    def _factories_of(self, hook: str) -> dict[str, tuple[str, Factory[Any]]]:
        assert hook in FACTORY_HOOKS, f"{hook} is not a factory hook"
        if hook not in self._factories:
            self._factories[hook] = self._collect(hook)
        return self._factories[hook]

    def _collect(self, hook: str) -> dict[str, tuple[str, Factory[Any]]]:
        found: dict[str, tuple[str, Factory[Any]]] = {}
        for impl in getattr(self._pluggy.hook, hook).get_hookimpls():
            info = self._plugins[impl.plugin_name]
            try:
                answer = impl.function()
            except PluginError:
                raise
            except Exception as error:
                raise PluginError(
                    f"hook {hook!r} of plugin {info.name!r} raised {type(error).__name__}: {error}",
                    where=_place(impl.function, info.source),
                    todo="a factory hook must return a list of Factory and do nothing else",
                ) from error
            for factory in check_factories(answer, hook, info.name, _place(impl.function, info.source)):
                if factory.name in found:
                    other = self._plugins[found[factory.name][0]]
                    raise PluginError(
                        f"{hook} {factory.name!r} is given by two plugins: {other.name!r} and {info.name!r}",
                        where=f"{other.source} and {info.source}",
                        todo="rename one of the factories, or remove one of the plugins",
                    )
                found[factory.name] = (info.name, factory)
        return dict(sorted(found.items()))

    def resolve(
        self, hook: str, ref: PluginRef, *, path: str | None = None, config: RunConfig | None = None
    ) -> tuple[Factory[Any], Options]:
        """The factory that ``ref`` names and its validated options.

        ``path`` is where the YAML names it (default: :data:`HOOK_PATHS`); with ``config`` an error also names the line.
        Raises :class:`ConfigError`.
        """
        path = path or HOOK_PATHS[hook]
        located = config.where if config is not None else str
        factories = self.factories(hook)
        if ref.name not in factories:
            raise ConfigError(
                f"there is no {hook} called {ref.name!r}",
                where=located(path),
                todo=did_you_mean(ref.name, factories, noun=hook),
            )
        factory = factories[ref.name]
        try:
            return factory, factory.options.model_validate(dict(ref.options))
        except ValidationError as error:
            raise option_error(
                error,
                model=factory.options,
                subject=f"{hook} {ref.name!r}",
                path=f"{path}.options",
                located=located,
            ) from error

    def build(self, hook: str, ref: PluginRef, context: BuildContext, *, path: str | None = None) -> Any:
        """Resolve ``ref`` and build its object.

        Raises :class:`PluginError` where a third party's factory raises, or builds what is no object of its kind.
        """
        factory, options = self.resolve(hook, ref, path=path, config=context.config)
        owner = self.owner(hook, factory.name)
        subject = f"the factory of {hook} {factory.name!r} of plugin {owner.name!r}"
        try:
            built = factory.build(options, context)
        except SpadeError:
            raise
        except Exception as error:
            if not owner.third_party:
                raise
            raise PluginError(
                f"{subject} raised {type(error).__name__}: {error}", where=_line_of(error, _place(factory.build, owner.source)),
                todo="mend the plugin",
            ) from error
        missing = [name for name in members_of(KINDS[hook]) if not hasattr(built, name)]
        if missing:
            raise PluginError(
                f"{subject} built {built!r:.80}, which has no {', '.join(missing)}", where=_place(factory.build, owner.source),
                todo=f"build an object with everything that spade_agentic.{KINDS[hook].__name__} names",
            )
        return built

    # -- life cycle -------------------------------------------------------------------------------------------------------

    def call_lifecycle(self, hook: str, **arguments: Any) -> None:
        """Call a life-cycle hook of every plugin, the one that was registered last first (as pluggy does).

        An exception of a third party is counted in ``hook_errors`` and logged as the event ``hook_failed`` (the 1st, 2nd, 4th,
        8th ... of one hook, with the count); it is raised as
        :class:`PluginError` where the plugin's module sets ``spade_agentic_fatal = True``. Ours is raised as it is.
        """
        assert hook in LIFECYCLE_HOOKS, f"{hook} is not a life-cycle hook"
        for impl in reversed(getattr(self._pluggy.hook, hook).get_hookimpls()):
            info = self._plugins[impl.plugin_name]
            try:
                impl.function(**{name: arguments[name] for name in impl.argnames})
            except Exception as error:
                if not info.third_party:
                    raise
                self._note_failure(info, hook, error)
                if info.fatal:
                    raise PluginError(
                        f"hook {hook!r} of plugin {info.name!r} raised {type(error).__name__}: {error}",
                        where=_place(impl.function, info.source),
                        todo="mend the plugin; it asks to be fatal (spade_agentic_fatal = True)",
                    ) from error

    def _note_failure(self, info: PluginInfo, hook: str, error: Exception) -> None:
        import structlog

        self.hook_errors[info.name, hook] += 1
        if self.hook_errors[info.name, hook].bit_count() > 1:
            return  # a hook that fails at every play is told of the 1st, 2nd, 4th, 8th ... time
        structlog.get_logger(PROJECT).error(
            "hook_failed",
            plugin=info.name,
            hook=hook,
            count=self.hook_errors[info.name, hook],
            error=f"{type(error).__name__}: {error}",
            exc_info=error,
        )

    def blame(self, error: BaseException) -> PluginError | None:
        """The error of the third party whose code raised ``error``; ``None`` where that was ours, or is one of ours.

        The innermost frame decides that belongs to a plugin or to us: what a plugin's library raises is the plugin's.
        """
        if isinstance(error, SpadeError):
            return None
        for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
            file = frame.f_code.co_filename
            owner = next((info for info in self._plugins.values() if info.third_party and _holds(info.module, file)), None)
            if owner is not None:
                return PluginError(
                    f"plugin {owner.name!r} raised {type(error).__name__}: {error}",
                    where=f"{file}:{line}, in {frame.f_code.co_qualname}", todo=GO_ON,
                )
            if Path(file).is_relative_to(OURS):
                return None
        return None

    @property
    def hook_error_count(self) -> int:
        """How many life-cycle hook calls of third parties have failed."""
        return sum(self.hook_errors.values())


# --- checks ----------------------------------------------------------------------------------------------------------------


def check_hookimpls(module: ModuleType, plugin: str, source: str) -> None:
    """Refuse a module whose hook implementations do not fit the specifications, or that implements none."""
    known = (*FACTORY_HOOKS, *LIFECYCLE_HOOKS)
    implemented = 0
    for name, function in inspect.getmembers(module, inspect.isroutine):
        options = getattr(function, f"{PROJECT}_impl", None)
        if options is None:
            continue
        implemented += 1
        place = _place(function, source)
        hook = options.get("specname") or name
        if hook not in known:
            raise PluginError(
                f"plugin {plugin!r} implements {hook!r}, which is not a hook",
                where=place,
                todo=did_you_mean(hook, known, noun="hook"),
            )
        if options.get("wrapper") or options.get("hookwrapper"):
            raise PluginError(
                f"hook {hook!r} of plugin {plugin!r} is a wrapper", where=place, todo="implement the hook itself"
            )
        _check_signature(function, hook, plugin, place)
    if not implemented:
        raise PluginError(
            f"plugin {plugin!r} implements no hook",
            where=getattr(module, "__file__", None) or source,
            todo="mark its functions with @hookimpl (from spade_agentic import hookimpl); hooks: " + ", ".join(known),
        )


def _check_signature(function: Any, hook: str, plugin: str, place: str) -> None:
    if inspect.iscoroutinefunction(function):
        raise PluginError(f"hook {hook!r} of plugin {plugin!r} is async", where=place, todo="make it a plain function")
    given = [p for p in inspect.signature(getattr(Specs, hook)).parameters if p != "self"]
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise PluginError(
                f"hook {hook!r} of plugin {plugin!r} takes *{parameter.name}",
                where=place,
                todo=f"name the arguments that it wants; {hook} gives: {', '.join(given) or 'none'}",
            )
        if parameter.name not in given and parameter.default is parameter.empty:
            raise PluginError(
                f"hook {hook!r} of plugin {plugin!r} wants an argument {parameter.name!r} that the hook does not give",
                where=place,
                todo=did_you_mean(parameter.name, given, noun="argument") if given else f"{hook} gives no arguments",
            )


def check_factories(answer: Any, hook: str, plugin: str, place: str) -> list[Factory[Any]]:
    """The factories that a hook answered with, or :class:`PluginError` naming what is wrong with them."""

    def broken(what: str, todo: str) -> PluginError:
        return PluginError(f"hook {hook!r} of plugin {plugin!r} {what}", where=place, todo=todo)

    if not isinstance(answer, Sequence) or isinstance(answer, str):
        raise broken(f"returned {type(answer).__name__}, not a list of Factory", "return [Factory(name, build, Options)]")
    for factory in answer:
        if not isinstance(factory, Factory):
            raise broken(f"returned a list with {factory!r} in it", "every element must be a Factory")
        if not isinstance(factory.name, str) or not factory.name:
            raise broken(f"has a factory whose name is {factory.name!r}", "give it a name for the YAML")
        if not (isinstance(factory.options, type) and issubclass(factory.options, BaseModel)):
            raise broken(
                f"has factory {factory.name!r} whose options are {factory.options!r}",
                "options must be a subclass of spade_agentic.Options",
            )
        if not callable(factory.build):
            raise broken(f"has factory {factory.name!r} whose build is {factory.build!r}", "build must be callable")
        try:
            inspect.signature(factory.build).bind(None, None)
        except TypeError as error:
            raise broken(
                f"has factory {factory.name!r} whose build does not take (options, context): {error}",
                "make it build(options, context)",
            ) from error
    return list(answer)


def members_of(protocol: type[Any]) -> list[str]:
    """The names that an object of a kind must have: its methods and its attributes."""
    found: dict[str, None] = {}
    for base in reversed(protocol.__mro__):
        if getattr(base, "_is_protocol", False):
            found |= dict.fromkeys([*getattr(base, "__annotations__", {}), *vars(base)])
    own = (name for name in found if not name.startswith("_") or name == "__len__")
    return list(own)


def _holds(module: ModuleType, file: str) -> bool:
    """Whether ``file`` is the module's own, or lies in its package."""
    own = getattr(module, "__file__", None)
    if own is None:
        return False
    return file == own or (hasattr(module, "__path__") and Path(file).is_relative_to(Path(own).parent))


def _line_of(error: BaseException, place: str) -> str:
    """The line of the file at ``place`` (``file:line``) that raised ``error``; ``place`` itself where there is none."""
    file = place.rpartition(":")[0]
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return f"{file}:{lines[-1]}" if lines else place


def _place(function: Any, source: str) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else source


def _normal(distribution: str) -> str:
    return distribution.lower().replace("_", "-").replace(".", "-")
