"""From a file's name and overrides to a checked :class:`RunConfig`."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spade_agentic.errors import ConfigError

from . import yaml_source
from .files import ConfigFile, absolute_plugin, find_config, read_config, shipped_configs
from .schema import PluginRef, RunConfig
from .suggest import did_you_mean
from .validation import accepts_plugin_ref, keys_at, option_error

__all__ = ["config_from_text", "load_config", "resolve_model", "shipped_configs", "shipped_models"]

SHIPPED_MODELS = {"spade-tiny": ("spade_agentic.bootstrap", "spade_tiny")}


def shipped_models() -> list[str]:
    """Names of the models inside the package."""
    return sorted(SHIPPED_MODELS)


def load_config(
    name_or_path: str | Path, overrides: Sequence[str] = (), plugins: Sequence[str | Path] = ()
) -> RunConfig:
    """The run that a YAML describes.

    ``overrides`` are ``"a.b=c"`` with YAML values; ``plugins`` are added to the config's own (relative to the working
    directory). Raises :class:`ConfigError` naming file, line, key and the nearest known key.
    """
    return _config(find_config(name_or_path), overrides, plugins)


def config_from_text(
    text: str,
    *,
    name: str = "config",
    base: Path | None = None,
    overrides: Sequence[str] = (),
    plugins: Sequence[str | Path] = (),
) -> RunConfig:
    """As :func:`load_config`, from the text itself. Relative paths (of plugins, and of what it extends) start at ``base``."""
    return _config(ConfigFile(text, name, base or Path.cwd()), overrides, plugins)


def _config(file: ConfigFile, overrides: Sequence[str], plugins: Sequence[str | Path]) -> RunConfig:
    data, sources = read_config(file)
    written = _listed_plugins(data)
    for override in overrides:
        apply_override(data, sources, override)
    _absolute_plugins(data, written, file.base, plugins)

    def located(path: str) -> str:
        probe = RunConfig.model_construct()
        probe._sources = sources
        place = probe.where(path)
        return place if place != path else f"{path} ({file.name})"

    try:
        # Through JSON's data model, so that a number written as a word is not quietly converted.
        config = RunConfig.model_validate(data)
    except ValidationError as error:
        raise option_error(error, model=RunConfig, subject="the run", path="", located=located) from error
    config._sources = sources
    return config


def _listed_plugins(data: dict[str, Any]) -> list[Any]:
    listed = data.get("plugins")
    return list(listed) if isinstance(listed, list) else []


def _absolute_plugins(data: dict[str, Any], written: list[Any], base: Path, extra: Sequence[str | Path]) -> None:
    """Make the paths of plugins that overrides list absolute too, as those in files (``written``) are; and add ``extra``."""
    found = [
        absolute_plugin(item, base) if isinstance(item, str) and item not in written else item
        for item in _listed_plugins(data)
    ]
    found += [str((Path.cwd() / Path(p).expanduser()).resolve()) if isinstance(p, Path) else absolute_plugin(p, Path.cwd())
              for p in extra]
    if found:
        data["plugins"] = list(dict.fromkeys(found))


# --- overrides ---------------------------------------------------------------------------------------------------------------


def apply_override(data: dict[str, Any], sources: dict[yaml_source.Path, str], override: str) -> None:
    """Put one ``a.b=c`` into ``data``. Raises :class:`ConfigError` for a path that the schema does not have."""
    origin = f"--set {override}"
    path, equals, text = override.partition("=")
    keys = [key.strip() for key in path.strip().split(".")]
    if not equals or not all(keys):
        raise ConfigError("an override must look like a.b=c", where=origin, todo="for example --set run.steps=8")
    value = yaml_source.parse_value(text, where=origin)
    _check_path(keys, origin)
    current: Any = data
    for depth in range(len(keys)):
        if isinstance(current, list):
            keys[depth] = str(_position(current, keys[depth], keys[: depth + 1], origin))
        if depth < len(keys) - 1:
            current = _enter(current, keys[: depth + 1], origin)
    current[int(keys[-1]) if isinstance(current, list) else keys[-1]] = value
    place = tuple(keys)
    for known in [p for p in sources if p[: len(place)] == place]:
        del sources[known]
    sources[place] = origin


def _check_path(keys: list[str], origin: str) -> None:
    """Name the first key that the schema lacks. Below ``options`` the plugin's model decides, later."""
    for depth, key in enumerate(keys):
        known = keys_at(RunConfig, keys[:depth])
        if not known:
            return
        if key not in known:
            at = ".".join(keys[:depth]) or "the run"
            raise ConfigError(f"{at} has no key {key!r}", where=origin, todo=did_you_mean(key, known, noun="key"))


def _enter(current: Any, path: list[str], origin: str) -> Any:
    """What stands at the end of ``path``, made a mapping where it is a plugin's bare name or not given at all."""
    key: Any = int(path[-1]) if isinstance(current, list) else path[-1]
    if isinstance(current, dict) and current.get(key) is None:
        current[key] = _default_at(path)
    if isinstance(current[key], str) and accepts_plugin_ref(RunConfig, path):
        current[key] = {"name": current[key]}
    if not isinstance(current[key], dict | list):
        raise ConfigError(
            f"{'.'.join(path)} is {current[key]!r}, which has no keys", where=origin, todo="override the whole value"
        )
    return current[key]


def _default_at(path: list[str]) -> Any:
    """What stands at ``path`` where the YAML does not say: the default, so that an override changes only its own key."""
    current: Any = RunConfig()
    for key in path:
        current = getattr(current, key, None)
    if isinstance(current, PluginRef):
        return {"name": current.name}
    if isinstance(current, tuple):
        return [item.name for item in current]
    return {}


def _position(items: list[Any], key: str, path: list[str], origin: str) -> int:
    at = ".".join(path[:-1])
    for index, item in enumerate(items):
        if (item.get("name") if isinstance(item, dict) else item) == key:
            return index
    if not key.isdigit() or int(key) >= len(items):
        raise ConfigError(
            f"{at} is a list of {len(items)} and has no element {key!r}",
            where=origin,
            todo=f"use a position from 0, a name in it, or replace the list: --set {at}=[...]",
        )
    return int(key)


# --- models ------------------------------------------------------------------------------------------------------------------


def resolve_model(path: str | Path) -> Path:
    """The folder of a shipped model's name, or of a local model. Raises :class:`ConfigError`."""
    name = str(path)
    if name in SHIPPED_MODELS:
        package, folder = SHIPPED_MODELS[name]
        found = Path(str(importlib.resources.files(package))) / folder
        if not (found / "config.json").is_file():
            raise ConfigError(
                f"the shipped model {name!r} is missing from this installation",
                where=str(found),
                todo="rebuild it with `spade-agentic bootstrap`, or reinstall spade-agentic",
            )
        return found
    local = Path(name).expanduser()
    try:
        if (local / "config.json").is_file():
            return local.resolve()
    except OSError as error:
        raise ConfigError(
            f"the model cannot be read: {error.strerror}", where=str(local), todo="make the folder readable, or name another"
        ) from error
    if local.is_dir():
        raise ConfigError("this folder holds no model", where=str(local.resolve()), todo="it needs a config.json")
    raise ConfigError(
        f"there is no model {name!r}: neither a shipped one nor a local folder",
        where="model.path",
        todo=did_you_mean(name, SHIPPED_MODELS, noun="shipped model") + "; or give a folder that holds a config.json",
    )


def config_to_yaml(config: RunConfig) -> str:
    """The resolved run as YAML that loads to an equal config."""
    return yaml_source.dump_yaml(json.loads(config.model_dump_json()))
