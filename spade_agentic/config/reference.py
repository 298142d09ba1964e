"""The reference of a run's configuration, in Markdown: made from the schema and from every plugin's options."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from .schema import PluginRef, RunConfig
from .validation import model_of

if TYPE_CHECKING:
    from spade_agentic.hooks.manager import PluginManager

__all__ = ["OptionRow", "option_rows", "reference_page"]


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One key of a model: its dotted name, its type in words, its default as YAML (``None``: required), and what it is."""

    name: str
    kind: str
    default: str | None
    doc: str


def option_rows(model: type[BaseModel], prefix: str = "") -> list[OptionRow]:
    """The keys of ``model``; those of a nested model follow their section, with dotted names."""
    rows: list[OptionRow] = []
    for name, field in model.model_fields.items():
        full = f"{prefix}{field.alias or name}"
        nested = model_of(field.annotation)
        if nested is None or issubclass(nested, PluginRef):
            rows.append(OptionRow(full, type_words(field.annotation), _default(field), _sentence(field.description)))
        else:
            if _is_optional(field.annotation):
                rows.append(OptionRow(full, "mapping or null", _default(field), _sentence(field.description)))
            rows += option_rows(nested, prefix=f"{full}.")
    return rows


def reference_page(manager: PluginManager | None = None) -> str:
    """The page: every key of a run, then every plugin that can be named in it. Default: the installed plugins."""
    from spade_agentic.hooks.manager import HOOK_PATHS, PluginManager
    from spade_agentic.hooks.specs import FACTORY_HOOKS

    manager = PluginManager.load() if manager is None else manager
    parts = [
        "# Configuration",
        "Made by `spade-agentic config schema --markdown` from the schema; do not edit it by hand. A run is one YAML file."
        " Unknown keys are refused, values are not converted. A plugin is named by its bare name, or by"
        " `{name: ..., options: {...}}`. `--set a.b=c` overrides one key.",
        "## Keys of a run",
    ]
    for name, field in RunConfig.model_fields.items():
        section = model_of(field.annotation)
        parts.append(f"### `{name}`\n\n{_sentence(field.description)}")
        if section is None or section is PluginRef:
            parts.append(_table([OptionRow(name, type_words(field.annotation), _default(field), "")]))
        else:
            parts.append(_table(option_rows(section, prefix=f"{name}.")))
    parts.append("## Plugins")
    for hook in FACTORY_HOOKS:
        parts.append(f"### `{HOOK_PATHS[hook]}`: {hook}")
        for name, factory in manager.factories(hook).items():
            parts.append(f"#### `{name}`\n\n{_sentence(factory.doc)}")
            rows = option_rows(factory.options)
            parts.append(_table(rows) if rows else "It has no options.")
    return "\n\n".join(part for part in parts if part.strip()) + "\n"


# --- words -------------------------------------------------------------------------------------------------------------------


_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null", Any: "anything"}


def type_words(kind: Any) -> str:
    """A type annotation in the words of a YAML file."""
    if kind in _WORDS:
        return _WORDS[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return type_words(arguments[0])
    if origin is typing.Literal:
        return " or ".join(f"`{_yaml(a)}`" for a in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_words(a) for a in arguments)
    if origin in (list, tuple, set, frozenset):
        return _list_words(arguments)
    if origin is dict or kind is dict:
        return "mapping"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(f"`{item.value}`" for item in kind)
    if isinstance(kind, type) and issubclass(kind, PluginRef):
        return "plugin"
    return "mapping" if model_of(kind) is not None else getattr(kind, "__name__", str(kind))


def _list_words(arguments: tuple[Any, ...]) -> str:
    inner = [a for a in arguments if a is not Ellipsis]
    if len(inner) > 1 and len(set(inner)) == 1:
        return f"list of {len(inner)}: {type_words(inner[0])}"
    return f"list of {', '.join(type_words(a) for a in inner)}" if inner else "list"


def _is_optional(kind: Any) -> bool:
    return type(None) in typing.get_args(kind)


def _default(field: FieldInfo) -> str | None:
    """The default as a person would write it in YAML; ``None`` where the key is required."""
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return None
    if isinstance(value, PluginRef):
        return value.name if not value.options else _yaml(value.model_dump(mode="json"))
    if isinstance(value, tuple) and value and all(isinstance(item, PluginRef) for item in value):
        return "[" + ", ".join(item.name for item in value) + "]"
    return _yaml(value)


def _yaml(value: Any) -> str:
    data = to_jsonable_python(value)
    return data if isinstance(data, str) and data else json.dumps(data)


def _sentence(text: str | None) -> str:
    text = " ".join((text or "").split())
    return text[:1].upper() + text[1:] + ("" if not text or text.endswith((".", "?", "!")) else ".")


def _table(rows: Iterable[OptionRow]) -> str:
    lines = ["| key | type | default | what it is |", "| --- | --- | --- | --- |"]
    for row in rows:
        default = "required" if row.default is None else f"`{row.default}`"
        cells = (f"`{row.name}`", row.kind, default, row.doc)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
