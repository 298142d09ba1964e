"""What the host checks in every answer of a program, since the runner shares its interpreter with it.

Each check raises :class:`EnvironmentFault` with a stable code: ``bad_manifest``, ``bad_type``, ``bad_reward``,
``too_large``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from spade_agentic.errors import EnvironmentFault
from spade_agentic.hooks.kinds import StepObservation
from spade_agentic.hooks.records import Program

__all__ = ["MAX_TOOLS", "MAX_TURNS", "checked_manifest", "checked_probe", "checked_reset", "checked_step"]

MAX_TOOLS = 64
MAX_TURNS = 256
_MAX_INFO_CHARS = 4_096


def checked_manifest(program: Program, manifest: Any) -> dict[str, Any]:
    """The manifest that a loaded program gave, with ``lines`` added (lines of its source)."""
    if not isinstance(manifest, dict):
        raise EnvironmentFault("bad_manifest", "not an object")
    kind, tools, system, turns = (manifest.get(key) for key in ("kind", "tools", "system", "max_turns"))
    if kind != program.kind.value:
        raise EnvironmentFault("bad_manifest", f"the program is of kind {kind!r:.20}, not {program.kind.value}")
    if not isinstance(system, str) or not isinstance(turns, int) or isinstance(turns, bool) or not 1 <= turns <= MAX_TURNS:
        raise EnvironmentFault("bad_manifest", f"system must be text, and max_turns lie between 1 and {MAX_TURNS}")
    if not isinstance(tools, list) or len(tools) > MAX_TOOLS or not all(map(_is_schema, tools)):
        raise EnvironmentFault("bad_manifest", f"tools must be at most {MAX_TOOLS} function schemas")
    names = [item["function"]["name"] for item in tools]
    if len(set(names)) != len(names):
        raise EnvironmentFault("bad_manifest", "two tools have one name")
    return {"kind": kind, "tools": tools, "system": system, "max_turns": turns, "lines": len(program.source.splitlines())}


def _is_schema(item: Any) -> bool:
    function = item.get("function") if isinstance(item, dict) and item.get("type") == "function" else None
    if not isinstance(function, dict):
        return False
    parameters = function.get("parameters")
    return (
        isinstance(function.get("name"), str)
        and isinstance(function.get("description"), str)
        and isinstance(parameters, dict)
        and isinstance(parameters.get("properties"), dict)
        and all(isinstance(value, dict) for value in parameters["properties"].values())
    )


def checked_reset(answer: Any, max_chars: int) -> StepObservation:
    if not isinstance(answer, list) or len(answer) != 2:
        raise EnvironmentFault("bad_type", "reset must give an observation and info")
    return StepObservation(_text(answer[0], max_chars), info=_info(answer[1]))


def checked_step(answer: Any, max_chars: int) -> StepObservation:
    if not isinstance(answer, list) or len(answer) != 5:
        raise EnvironmentFault("bad_type", "step must give observation, reward, terminated, truncated and info")
    text, reward, terminated, truncated, info = answer
    if isinstance(reward, bool) or not isinstance(reward, (int, float)):
        raise EnvironmentFault("bad_reward", f"reward is a {type(reward).__name__}")
    if not math.isfinite(reward) or not -1.0 <= reward <= 1.0:
        raise EnvironmentFault("bad_reward", f"reward {reward!r:.40} is not in [-1, 1]")
    if not isinstance(terminated, bool) or not isinstance(truncated, bool):
        raise EnvironmentFault("bad_type", "terminated and truncated must be true or false")
    return StepObservation(_text(text, max_chars), float(reward), terminated, truncated, _info(info))


def checked_probe(answer: Any) -> Mapping[str, Any]:
    """``criteria`` (truths), ``solution`` (one list for each instruction), ``instructions`` (texts), ``current``."""
    if not isinstance(answer, dict):
        raise EnvironmentFault("bad_type", "a probe must be an object")
    criteria, solution, texts = (answer.get(key) for key in ("criteria", "solution", "instructions"))
    fine = (
        isinstance(criteria, list)
        and all(isinstance(item, bool) for item in criteria)
        and isinstance(solution, list)
        and all(isinstance(calls, list) for calls in solution)
        and isinstance(texts, list)
        and all(isinstance(text, str) for text in texts)
        and isinstance(answer.get("current"), int)
    )
    if not fine:
        raise EnvironmentFault("bad_type", "a probe has criteria, solution, instructions and current")
    return answer


def _text(value: Any, max_chars: int) -> str:
    if not isinstance(value, str):
        raise EnvironmentFault("bad_type", f"the observation is a {type(value).__name__}, not text")
    if len(value) > max_chars:
        raise EnvironmentFault("too_large", f"an observation of {len(value)} characters, at most {max_chars}")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise EnvironmentFault("bad_type", "the observation holds what UTF-8 cannot")
    return value


def _info(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or len(json.dumps(value)) > _MAX_INFO_CHARS:
        raise EnvironmentFault("bad_type", f"info must be an object of at most {_MAX_INFO_CHARS} characters")
    return value
