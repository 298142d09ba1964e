"""Where configs come from: local files and shipped ones; and configs that extend another.

A YAML may say ``extends: other.yaml``. That is a file beside it, else a shipped config of that name; it may extend a third.
What the extending file says goes before what the other says: mappings are merged key by key, lists are replaced, and so is a
plugin that is named anew (its options belong to the old name). ``{options: {...}}`` without a name keeps the plugin and merges
its options.
"""

from __future__ import annotations

import importlib.resources
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from spade_agentic.errors import ConfigError
from spade_agentic.hooks.loading import looks_like_path

from . import yaml_source
from .schema import RunConfig
from .suggest import did_you_mean, nearest
from .validation import accepts_plugin_ref

__all__ = ["EXTENDS", "ConfigFile", "absolute_plugin", "find_config", "read_config", "shipped_configs"]

CONFIG_PACKAGE = "spade_agentic_configs"
EXTENDS = "extends"
_ENDINGS = (".yaml", ".yml")

Sources = dict[yaml_source.Path, str]


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One YAML. ``name`` is what messages call it; ``base`` is the folder that its relative paths start from.

    ``path`` is the local file and ``shipped`` the name within the package; a text that was handed in has neither.
    """

    text: str
    name: str
    base: Path
    path: Path | None = None
    shipped: str | None = None

    def same(self, other: ConfigFile) -> bool:
        """Whether both are the same file."""
        ours, theirs = (self.path, self.shipped), (other.path, other.shipped)
        return ours == theirs and ours != (None, None)


# --- finding -----------------------------------------------------------------------------------------------------------------


def shipped_configs() -> list[str]:
    """Names of the configs inside the package, with ``/`` between folder and file: ``tooluse.yaml``, ``ablations/ema.yaml``."""
    return sorted(_names(importlib.resources.files(CONFIG_PACKAGE)))


def _names(folder: Traversable, prefix: str = "") -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.name.endswith(_ENDINGS):
            yield prefix + entry.name
        elif entry.is_dir() and not entry.name.startswith(("_", ".")):
            yield from _names(entry, f"{prefix}{entry.name}/")


def find_config(name_or_path: str | Path) -> ConfigFile:
    """The local file, else the shipped config of that name (its ending may be left out). Raises :class:`ConfigError`."""
    path = Path(name_or_path).expanduser()
    if _is_file(path):
        return _local(path, str(name_or_path))
    found = _shipped(str(name_or_path))
    if found is not None:
        return found
    if str(name_or_path) and path.exists():
        raise ConfigError(
            "this is a folder, not a config" if path.is_dir() else "this is no regular file", where=str(path.resolve()),
            todo="name the YAML file of a run",
        )
    raise ConfigError(
        f"there is no config called {str(name_or_path)!r}, neither a file nor a shipped one",
        where=str(path.resolve() if path.is_absolute() else Path.cwd() / path),
        todo=did_you_mean(_short(path), shipped_configs(), noun="shipped config"),
    )


def _short(path: Path) -> str:
    """The part of a path that a shipped config could be called by."""
    names = {name.rpartition("/")[0] for name in shipped_configs()}
    return f"{path.parent.name}/{path.name}" if path.parent.name in names - {""} else path.name


def _local(path: Path, name: str) -> ConfigFile:
    try:
        return ConfigFile(path.read_text(encoding="utf-8"), name, path.resolve().parent, path=path.resolve())
    except OSError as error:
        raise _unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the config cannot be read: {error}", where=str(path), todo="save it as UTF-8") from error


def _is_file(path: Path) -> bool:
    """Raises :class:`ConfigError` where the folder may not be looked into."""
    try:
        return path.is_file()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the config cannot be read: {error.strerror}", where=str(path), todo="make the file readable, or name another"
    )


def _shipped(name: str) -> ConfigFile | None:
    known = shipped_configs()
    for candidate in (name, f"{name}.yaml"):
        if candidate in known:
            entry = importlib.resources.files(CONFIG_PACKAGE).joinpath(*candidate.split("/"))
            return ConfigFile(entry.read_text(encoding="utf-8"), candidate, Path.cwd(), shipped=candidate)
    return None


def _extended(file: ConfigFile, name: str, where: str) -> ConfigFile:
    """What ``file`` means by ``extends: name``."""
    if file.shipped is not None:
        beside = _shipped(posixpath.normpath(posixpath.join(posixpath.dirname(file.shipped), name)))
        found = beside or _shipped(name)
    else:
        path = (file.base / Path(name).expanduser()).resolve()
        found = _local(path, _shown(path)) if _is_file(path) else _shipped(name)
    if found is not None:
        return found
    at = "among the shipped configs" if file.shipped is not None else f"in {file.base}, nor among the shipped configs"
    raise ConfigError(
        f"the config to extend, {name!r}, is not {at}", where=where,
        todo=did_you_mean(_short(Path(name)), shipped_configs(), noun="shipped config"),
    )


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


# --- reading -----------------------------------------------------------------------------------------------------------------


def read_config(file: ConfigFile) -> tuple[dict[str, Any], Sources]:
    """The data of ``file`` over that of all it extends, and the file and line of every key.

    Plugin paths are absolute: each starts from the file that names it. Raises :class:`ConfigError`.
    """
    return _read(file, [])


def _read(file: ConfigFile, extending: list[ConfigFile]) -> tuple[dict[str, Any], Sources]:
    data, sources = yaml_source.parse_yaml(file.text, file.name)
    if not isinstance(data, dict):
        raise ConfigError(f"a run is a mapping, not {type(data).__name__}", where=file.name, todo="begin with `run:`")
    _absolute_plugins(data, file.base)
    _refuse_typo(data, sources)
    if EXTENDS not in data:
        return data, sources
    name, where = data.pop(EXTENDS), f"{EXTENDS} ({sources.pop((EXTENDS,))})"
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(
            f"{EXTENDS} names one config, not {name!r}", where=where, todo=f"write for example {EXTENDS}: tooluse.yaml"
        )
    other = _extended(file, name, where)
    chain = [*extending, file]
    if any(other.same(known) for known in chain):
        way = " -> ".join([*(known.name for known in chain), other.name])
        raise ConfigError(
            f"the configs extend each other in a circle: {way}", where=where,
            todo="take one `extends` out; a file that extends a shipped config of its own name needs another name",
        )
    below, known = _read(other, chain)
    return _merged(below, known, data, sources)


def _refuse_typo(data: dict[str, Any], sources: Sources) -> None:
    """``extends`` is no key of a run, so that the schema cannot know what a misspelt one was meant to be."""
    known = [*RunConfig.model_fields, EXTENDS]
    for key in data.keys() - set(known):
        if nearest(str(key), known) == EXTENDS:
            raise ConfigError(
                f"the run has no key {key!r}", where=f"{key} ({sources[str(key),]})", todo=f"did you mean {EXTENDS!r}?"
            )


def _merged(
    below: dict[str, Any], below_sources: Sources, above: dict[str, Any], above_sources: Sources
) -> tuple[dict[str, Any], Sources]:
    replaced: list[yaml_source.Path] = []
    data = _merge(below, above, (), replaced)
    kept = {
        path: place for path, place in below_sources.items()
        if not any(path[: len(gone)] == gone for gone in replaced)
    }  # fmt: skip
    return data, {**kept, **above_sources}


def _merge(below: Any, above: Any, path: yaml_source.Path, replaced: list[yaml_source.Path]) -> Any:
    """``above`` over ``below``; notes in ``replaced`` the places of which nothing of ``below`` is left."""
    plugin = isinstance(above, dict) and accepts_plugin_ref(RunConfig, path)
    if plugin and (isinstance(below, str) or below is None):
        below = {"name": below or "null"}  # a bare name; without quotation marks the name `null` is read as None
    if not isinstance(below, dict) or not isinstance(above, dict) or (plugin and "name" in above):
        replaced.append(path)
        return above
    inner = {key: _merge(below[key], above[key], (*path, str(key)), replaced) for key in above if key in below}
    return {**below, **above, **inner}


def _absolute_plugins(data: dict[str, Any], base: Path) -> None:
    """Make plugin paths absolute, so that a stored config means the same file wherever it is read."""
    listed = data.get("plugins")
    if isinstance(listed, list):
        data["plugins"] = [absolute_plugin(item, base) if isinstance(item, str) else item for item in listed]


def absolute_plugin(reference: str, base: Path) -> str:
    """A plugin's path from the root, where ``reference`` is a path; the name of a module stays as it is."""
    path = (base / Path(reference).expanduser()).resolve()
    return str(path) if looks_like_path(reference) or path.exists() else reference
