"""The environment contract: what a program is written against, and what a sandbox worker drives.

A program is a Python source that defines one concrete subclass of :class:`ToolEnv` or :class:`TextEnv`. Typed methods
marked ``@tool`` become OpenAI function schemas; arguments are validated before the method runs; instructions are
revealed one by one. ``reset`` and ``step`` have the meaning of Gymnasium's (observation and info; observation, reward,
terminated, truncated, info)::

    class Counter(ToolEnv):
        system = "Use the tools, then answer done."

        def setup(self, rng):
            self.value, target = 0, rng.randint(2, 9)
            return [Instruction(f"Set it to {target}.", lambda: self.value == target, [ToolCall("set_to", {"n": target})])]

        @tool
        def set_to(self, n: int) -> str:
            '''Set the counter.'''
            self.value = n
            return "ok"

The reference solution is data, read through :meth:`ToolEnv.probe` by the gates only; no string that the agent sees is
made from it. This module needs the standard library and pydantic, nothing else: it is imported in every worker.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import random
import sys
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ..errors import EnvironmentFault

__all__ = [
    "MAX_ARGUMENT_CHARS",
    "Instruction",
    "StepResult",
    "TextEnv",
    "ToolCall",
    "ToolEnv",
    "ToolError",
    "load_environment",
    "tool",
]

MAX_ARGUMENT_CHARS = 4_096
"""A call whose arguments are longer than this, as JSON, is refused before validation."""

StepResult = tuple[str, float, bool, bool, dict[str, Any]]
"""observation, reward, terminated, truncated, info"""

_MethodT = TypeVar("_MethodT", bound=Callable[..., Any])
_MARK = "__spade_tool__"


class ToolError(Exception):
    """A tool's refusal: the message becomes the observation ``{"error": message}`` and the play goes on."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of one tool. ``arguments`` is JSON-able."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "arguments": dict(self.arguments)}

    def as_action(self) -> dict[str, Any]:
        """The action that makes ``step`` execute this call."""
        return {"type": "call", **self.as_dict()}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One request: its text, a predicate on the environment's state, and a reference solution that makes it true."""

    text: str
    done: Callable[[], bool]
    solution: Sequence[ToolCall]


# --- tools -------------------------------------------------------------------------------------------------------------


def tool(method: _MethodT) -> _MethodT:
    """Expose a method to the agent.

    Every parameter needs a type annotation; ``Annotated[T, Field(description=...)]`` describes it. The first line of the
    docstring is the tool's description. The method returns text or anything JSON-able, or raises :class:`ToolError`.
    """
    setattr(method, _MARK, True)
    return method


@dataclass(frozen=True, slots=True)
class _Tool:
    name: str
    arguments: type[BaseModel]
    schema: Mapping[str, Any]


def _strip(node: Any, *, names: bool = False) -> Any:
    """Remove pydantic's titles and defaults; ``names``: the keys of this mapping are property names, not keywords."""
    if isinstance(node, dict):
        noise = () if names else ("title", "default", "additionalProperties")
        return {
            key: _strip(value, names=not names and key in ("properties", "$defs"))
            for key, value in node.items()
            if key not in noise or (key == "additionalProperties" and isinstance(value, dict))
        }
    return [_strip(item) for item in node] if isinstance(node, list) else node


@lru_cache(maxsize=1024)
def _make_tool(name: str, method: Callable[..., Any]) -> _Tool:
    hints = typing.get_type_hints(method, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) or parameter.name not in hints:
            raise TypeError(f"tool {name}: parameter {parameter.name} must be named and annotated")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], default)
    arguments = create_model(name, __config__=ConfigDict(extra="forbid", strict=True), **fields)
    parameters = _strip(arguments.model_json_schema())
    parameters.setdefault("properties", {})
    description = (inspect.getdoc(method) or name.replace("_", " ")).splitlines()[0]
    schema = {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
    return _Tool(name, arguments, schema)


@lru_cache(maxsize=256)
def _tools_of(cls: type[ToolEnv]) -> dict[str, _Tool]:
    """The tools of a class by name, base classes first, in order of definition. Overriding without ``@tool`` hides one."""
    found: dict[str, _Tool] = {}
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            if getattr(member, _MARK, False):
                found[name] = _make_tool(name, member)
            else:
                found.pop(name, None)
    return found


def _error(message: str) -> str:
    return json.dumps({"error": message})


def _validate(spec: _Tool, arguments: Any) -> dict[str, Any]:
    """Arguments as the method wants them, by JSON's types (no ``"5"`` for an integer). Raises :class:`ToolError`."""
    if not isinstance(arguments, Mapping):
        raise ToolError("arguments must be an object")
    try:
        text = json.dumps(dict(arguments), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ToolError("arguments are not JSON") from None
    if len(text) > MAX_ARGUMENT_CHARS:
        raise ToolError("arguments too long")
    try:
        model = spec.arguments.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part)[:40] for part in first["loc"]) or "arguments"
        raise ToolError(f"{where}: {first['msg'][:100]}".lower()) from None
    return {name: getattr(model, name) for name in type(model).model_fields}


# --- environments ------------------------------------------------------------------------------------------------------


class ToolEnv(ABC):
    """A tool-use environment.

    An author writes :meth:`setup` and the ``@tool`` methods, and may override :meth:`verify`. All state belongs on
    ``self`` and is made in ``setup`` from ``rng`` alone. An exception other than :class:`ToolError` in any of them is the
    program's fault and propagates.
    """

    system: ClassVar[str] = "Use the tools to do what the user asks. Answer done when everything is done."
    max_turns: ClassVar[int] = 16
    """Most calls and answers of one play, the final answer included."""

    def __init__(self) -> None:
        self._instructions: list[Instruction] = []
        self._current = 0
        self._turn = 0
        self._over = True

    @abstractmethod
    def setup(self, rng: random.Random) -> Sequence[Instruction]:
        """Make a fresh state and the play's instructions (at least one)."""

    def verify(self) -> bool:
        """Checked once, at the answer, after every criterion was reached; for example that nothing else was changed."""
        return True

    def tools(self) -> list[dict[str, Any]]:
        """OpenAI schemas of the tools; the same for every seed."""
        return [json.loads(json.dumps(spec.schema)) for spec in _tools_of(type(self)).values()]

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Start the instance of ``seed``; the observation is the first instruction's text."""
        self._instructions = list(self.setup(random.Random(seed)))
        assert self._instructions, "setup returned no instruction"
        self._current, self._turn, self._over = 0, 0, False
        return self._instructions[0].text, {}

    def step(self, action: Mapping[str, Any]) -> StepResult:
        """Take ``{"type": "call", "name", "arguments"}`` or ``{"type": "text", "text"}``; text ends the play.

        Reward is 1.0 at an answer given after every criterion was reached in order, if :meth:`verify` agrees; else 0.0.
        ``info`` has ``error`` (the call failed or was refused) and ``current`` (criteria reached).
        """
        if self._over:
            raise RuntimeError("step needs a reset first")
        self._turn += 1
        kind = action.get("type") if isinstance(action, Mapping) else None
        if kind == "text":
            self._over = True
            won = self._current == len(self._instructions) and self.verify()
            return "", float(won), True, False, {"error": False, "current": self._current}
        failed = True
        if kind == "call":
            observation, failed = self._call(action.get("name"), action.get("arguments", {}))
            observation += self._advance()
        else:
            observation = _error("malformed action")
        self._over = self._turn >= self.max_turns
        return observation, 0.0, False, self._over, {"error": failed, "current": self._current}

    def probe(self) -> dict[str, Any]:
        """What only the gates may see: every criterion's truth now, the reference solution, the texts, the position."""
        return {
            "criteria": [bool(item.done()) for item in self._instructions],
            "solution": [[call.as_dict() for call in item.solution] for item in self._instructions],
            "instructions": [item.text for item in self._instructions],
            "current": self._current,
        }

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Validate and run one tool; returns what the tool returns. Raises :class:`ToolError` where it is refused."""
        spec = _tools_of(type(self)).get(name) if isinstance(name, str) else None
        if spec is None:
            raise ToolError("unknown tool")
        return self.run_tool(name, _validate(spec, arguments))

    def run_tool(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Run one tool on validated arguments; a subclass may put something before or after every tool here."""
        return getattr(self, name)(**arguments)

    def _call(self, name: Any, arguments: Any) -> tuple[str, bool]:
        try:
            result = self.call_tool(name, arguments)
        except ToolError as error:
            return _error(str(error)), True
        if isinstance(result, str):
            return result, False
        try:
            return json.dumps(to_jsonable_python(result), ensure_ascii=False, allow_nan=False), False
        except (PydanticSerializationError, ValueError) as error:
            raise TypeError(f"tool {name} returned what JSON cannot hold") from error

    def _advance(self) -> str:
        """Texts of the instructions that the state now reveals, each on a new line."""
        revealed = ""
        while self._current < len(self._instructions) and self._instructions[self._current].done():
            self._current += 1
            if self._current < len(self._instructions):
                revealed += "\n" + self._instructions[self._current].text
        return revealed


class TextEnv(ABC):
    """An environment without tools: the agent's text goes in, an observation comes out.

    A host drives it with ``{"type": "text"}`` actions. ``solution`` is one winning sequence of texts for the seed of the
    last reset.
    """

    system: ClassVar[str] = ""
    max_turns: ClassVar[int] = 16

    @abstractmethod
    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]: ...

    @abstractmethod
    def step(self, text: str) -> StepResult: ...

    @abstractmethod
    def solution(self) -> Sequence[str]: ...


# --- programs ----------------------------------------------------------------------------------------------------------


def load_environment(source: str) -> ToolEnv | TextEnv:
    """Execute a program's source and make its environment: ``ENVIRONMENT`` where set, else the last concrete class.

    For use inside a sandbox worker and in tests: it runs the code. Classes that the program only imports do not count.
    Raises :class:`EnvironmentFault` with code ``syntax``, ``import_failed`` or ``no_environment``.
    """
    name = f"spade_program_{hashlib.sha256(source.encode(errors='replace')).hexdigest()[:16]}"
    try:
        code = compile(source, f"<{name}>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise EnvironmentFault("syntax", str(error)) from error
    module = types.ModuleType(name)
    sys.modules[name] = module  # dataclasses and pydantic look their module up there
    try:
        exec(code, module.__dict__)
    except Exception as error:
        raise EnvironmentFault("import_failed", f"{type(error).__name__}: {error}") from error
    chosen = vars(module).get("ENVIRONMENT")
    if chosen is None:
        own = [item for item in vars(module).values() if _is_concrete(item) and item.__module__ == name]
        chosen = own[-1] if own else None
    if not _is_concrete(chosen):
        raise EnvironmentFault("no_environment", "the program defines no concrete ToolEnv or TextEnv")
    try:
        if issubclass(chosen, ToolEnv):
            _tools_of(chosen)
        return typing.cast(ToolEnv | TextEnv, chosen())
    except Exception as error:
        raise EnvironmentFault("import_failed", f"{type(error).__name__}: {error}") from error


def _is_concrete(item: Any) -> typing.TypeGuard[type[Any]]:
    return isinstance(item, type) and issubclass(item, (ToolEnv, TextEnv)) and not inspect.isabstract(item)
