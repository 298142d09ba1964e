"""From what a user names (a file, a folder, a module) to imported plugin modules."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from spade_agentic.errors import PluginError

from .specs import PROJECT

__all__ = ["LoadedPlugin", "load_reference", "looks_like_path"]


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """An imported plugin module, the name it goes by, and where it came from."""

    name: str
    module: ModuleType
    source: str


def looks_like_path(reference: str) -> bool:
    """Whether a plugin reference means a file or folder rather than a module."""
    return reference.endswith(".py") or "/" in reference or reference.startswith((".", "~"))


def load_reference(reference: str | Path, *, base: Path) -> list[LoadedPlugin]:
    """Import what ``reference`` names: a ``.py`` file, a package folder, a project folder (with a ``pyproject.toml`` that
    has entry points of our group), or a module. Raises :class:`PluginError`.
    """
    text = str(reference)
    path = (base / Path(text).expanduser()).resolve()
    if isinstance(reference, Path) or looks_like_path(text) or path.exists():
        return _load_path(path)
    return [LoadedPlugin(text.rpartition(".")[2], _import(text, text), text)]


def _load_path(path: Path) -> list[LoadedPlugin]:
    if path.is_file() and path.suffix == ".py":
        return [LoadedPlugin(path.stem, _import_file(path), str(path))]
    if (path / "pyproject.toml").is_file():
        return _load_project(path)
    if (path / "__init__.py").is_file():
        _search(path.parent)
        return [LoadedPlugin(path.name, _import(path.name, str(path)), str(path))]
    raise PluginError(
        "there is no plugin here" if path.exists() else "there is no such plugin file",
        where=str(path),
        todo="name a .py file, a package folder, or a project folder with a pyproject.toml",
    )


def _load_project(path: Path) -> list[LoadedPlugin]:
    file = path / "pyproject.toml"
    try:
        project: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PluginError(f"the project file cannot be read: {error}", where=str(file), todo="mend it") from error
    entries = project.get("project", {}).get("entry-points", {}).get(PROJECT, {})
    if not entries:
        raise PluginError(
            f"the project has no entry point of group {PROJECT!r}",
            where=str(file),
            todo=f'add [project.entry-points.{PROJECT}] with a line such as my_plugin = "my_package"',
        )
    _search(path / "src" if (path / "src").is_dir() else path)
    return [LoadedPlugin(name, _import(module, str(path)), str(path)) for name, module in entries.items()]


def _search(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import(module: str, source: str) -> ModuleType:
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(error.name + ".")):
            raise PluginError(
                f"there is no module {module!r}", where=source, todo="install it, or name a file with its path (./x.py)"
            ) from error
        raise _broken(source, error) from error
    except Exception as error:
        raise _broken(source, error) from error


def _import_file(path: Path) -> ModuleType:
    name = f"spade_agentic_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _broken(str(path), error) from error
    return module


def _broken(source: str, error: Exception) -> PluginError:
    line = _line_in(error, source)
    return PluginError(
        f"the plugin cannot be imported: {type(error).__name__}: {error}",
        where=f"{source}:{line}" if line else source,
        todo="mend that module",
    )


def _line_in(error: Exception, source: str) -> int | None:
    """The last line of ``source`` in the error's traceback."""
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == source:
            line = frame.tb_lineno
        frame = frame.tb_next
    return error.lineno if isinstance(error, SyntaxError) and error.filename == source else line
