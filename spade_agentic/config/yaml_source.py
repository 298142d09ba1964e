"""YAML with line numbers, in the dialect a person expects.

YAML 1.2's scalars: ``1e-6`` is a number and ``no`` is a word (PyYAML reads YAML 1.1, where it is the other way round).
A key that stands twice is refused.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from spade_agentic.errors import ConfigError

__all__ = ["Path", "dump_yaml", "parse_value", "parse_yaml"]

Path = tuple[str, ...]

DEEPEST = 50
"""Levels of a document; a run has five. An alias that stands inside of what it names has no end."""


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2's core schema."""


class _Dumper(yaml.SafeDumper):
    """SafeDumper that puts quotes around the words which :class:`_Loader` would not read as words."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?[0-9]+$", list("-+0123456789")),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$",
     list("-+0123456789.")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(str(loader.construct_scalar(node)))


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Dumper.yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


def dump_yaml(data: Any) -> str:
    """JSON-able ``data`` as YAML that :func:`parse_yaml` reads back equal; keys stay in their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def parse_yaml(text: str, name: str) -> tuple[Any, dict[Path, str]]:
    """The data in ``text`` and, for every key and list element, ``name:line``. Raises :class:`ConfigError`."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        sources: dict[Path, str] = {}
        if node is None:
            return {}, sources
        _walk(node, (), name, sources)
        return loader.construct_document(node), sources
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name
        raise ConfigError(f"not valid YAML: {error.problem}", where=where, todo="mend that line") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {error}", where=name, todo="mend the file") from error
    except RecursionError as error:
        raise _too_deep(name) from error


def _too_deep(where: str) -> ConfigError:
    return ConfigError(
        f"the YAML is nested deeper than {DEEPEST} levels, or an alias stands inside of what it names", where=where,
        todo="write it out flat; a run needs no more than five levels",
    )


def _walk(node: yaml.Node, path: Path, name: str, sources: dict[Path, str]) -> None:
    if len(path) > DEEPEST:
        raise _too_deep(f"{name}:{node.start_mark.line + 1}")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            line = f"{name}:{key.start_mark.line + 1}"
            inner = (*path, str(key.value))
            if inner in sources:
                raise ConfigError(f"the key {key.value!r} stands twice", where=f"{sources[inner]} and {line}", todo="keep one")
            sources[inner] = line
            _walk(value, inner, name, sources)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            inner = (*path, str(index))
            sources[inner] = f"{name}:{value.start_mark.line + 1}"
            _walk(value, inner, name, sources)


def parse_value(text: str, *, where: str) -> Any:
    """The value of an override, in the same dialect. Raises :class:`ConfigError`."""
    data, _ = parse_yaml(text, where)
    return None if data == {} and not text.strip().startswith("{") else data
