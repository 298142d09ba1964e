"""Turning pydantic's validation errors into ours: one problem, where it stands, what to do."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from spade_agentic.errors import ConfigError

from .suggest import did_you_mean

__all__ = ["accepts_plugin_ref", "keys_at", "model_of", "option_error"]


def option_error(
    error: ValidationError,
    *,
    model: type[BaseModel],
    subject: str,
    path: str,
    located: Callable[[str], str],
) -> ConfigError:
    """The first problem of ``error`` as a :class:`ConfigError`, with the places of the others.

    ``path`` is where ``model`` stands in the YAML; ``located`` adds the file and line to a path.
    """
    problems = error.errors(include_url=False)
    # An unknown key comes first: it is usually the reason why another is missing.
    first = min(problems, key=lambda p: p["type"] != "extra_forbidden")
    loc = [str(part) for part in first["loc"]]
    full = ".".join(part for part in (path, *loc) if part)
    where = located(full)
    others = dict.fromkeys(".".join(part for part in (path, *map(str, p["loc"])) if part) for p in problems if p is not first)
    rest = f" (wrong too: {', '.join(name for name in others if name != full)})" if set(others) - {full} else ""
    owner = ".".join(part for part in (path, *loc[:-1]) if part) or subject
    if first["type"] == "extra_forbidden":
        todo = did_you_mean(loc[-1], keys_at(model, loc[:-1]), noun="key")
        return ConfigError(f"{owner} has no key {loc[-1]!r}{rest}", where=where, todo=todo)
    if first["type"] == "missing":
        return ConfigError(f"{owner} needs {loc[-1]!r}{rest}", where=where, todo=f"set {full}")
    message = _plain(first["msg"])
    given = "" if first["type"] == "value_error" else f", not {first['input']!r}"
    todo = _remedy(first, full or subject)
    if first["type"] == "literal_error":
        todo = did_you_mean(str(first["input"]), str(first["ctx"]["expected"]).replace("'", "").split(" or "), noun="value")
    return ConfigError(f"{full or subject} is wrong: {message}{given}{rest}", where=where, todo=todo)


def _remedy(problem: ErrorDetails, subject: str) -> str:
    """What to write instead: the value itself where its type alone is wrong."""
    given, kind = problem["input"], problem["type"]
    if kind in ("tuple_type", "list_type") and isinstance(given, str | int | float):
        return f"write a list: [{given}]"
    if kind.startswith(("int_", "float_", "bool_")):
        wanted = {"int": "a whole number", "float": "a number", "bool": "true or false"}[kind.partition("_")[0]]
        return f"write {wanted}" + (", without quotation marks" if isinstance(given, str) else "")
    if kind == "string_type" and isinstance(given, int | float):
        return f'write it as text: "{given}"'
    return f"change {subject}"


def _plain(message: str) -> str:
    """Pydantic's message in the words of a YAML file."""
    message = re.sub(r"^Value error, ", "", message)
    message = re.sub(r"dictionary or (?:instance|object) of \w+|dictionary", "mapping", message)
    message = message.replace("tuple", "list").replace(" after validation", "")
    return message[:1].lower() + message[1:]


def keys_at(model: type[BaseModel], loc: Sequence[str]) -> list[str]:
    """The keys that ``model`` knows at ``loc``, a path of keys and list positions."""
    current: Any = model
    for part in loc:
        current = _descend(current, part)
        if current is None:
            return []
    found = model_of(current)
    return [field.alias or name for name, field in found.model_fields.items()] if found is not None else []


def _descend(kind: Any, part: str) -> Any:
    model = model_of(kind)
    if model is not None:
        field = model.model_fields.get(part)
        return field.annotation if field is not None else None
    arguments = [a for a in typing.get_args(kind) if a not in (types.NoneType, Ellipsis)]
    return arguments[-1] if arguments else None


def model_of(kind: Any) -> type[BaseModel] | None:
    """The model in an annotation (itself, or one branch of a union), or ``None``."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    if typing.get_origin(kind) in (typing.Union, types.UnionType, typing.Annotated):
        for argument in typing.get_args(kind):
            found = model_of(argument)
            if found is not None:
                return found
    return None


def accepts_plugin_ref(model: type[BaseModel], loc: Sequence[str]) -> bool:
    """Whether a plugin reference (a bare name, or name and options) stands at ``loc``."""
    return {"name", "options"} <= set(keys_at(model, loc))
