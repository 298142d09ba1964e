"""What a completion of the agent is: one of four outcomes, as data.

Only a ``call`` reaches the environment. A call to an unknown tool, or with arguments that its schema refuses, is still a
call: the environment answers it with an error that the agent can learn from. Anything that is not clean JSON with a name
and an object of arguments is ``malformed``: nothing of that completion runs, also not the clean calls beside it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spade_agentic.hooks.records import Completion, FinishReason, ParseOutcome

from .rendering import Rendering

__all__ = ["MALFORMED_OBSERVATION", "ParsedTurn", "parse_completion"]

MALFORMED_OBSERVATION = json.dumps(
    {"error": "malformed tool call: give one JSON object with \"name\" and \"arguments\""}, separators=(",", ":")
)
"""The fixed answer to a malformed tool call."""


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """``calls`` are ``{"name", "arguments"}`` in the order they were made; empty unless ``outcome`` is ``CALL``."""

    outcome: ParseOutcome
    text: str
    calls: tuple[Mapping[str, Any], ...] = ()


def parse_completion(
    rendering: Rendering,
    completion: Completion,
    tools: Sequence[Mapping[str, Any]] | None,
    *,
    prompt_ids: Sequence[int] = (),
) -> ParsedTurn:
    """Read one completion of the agent. Never raises on anything that a policy can say."""
    text = rendering.text(completion.token_ids)
    if completion.finish_reason is not FinishReason.STOP:
        return ParsedTurn(ParseOutcome.TRUNCATED, text)
    try:
        parsed = rendering.parse(completion.token_ids, tools, prompt_ids)
    except (ValueError, RecursionError):  # digits without end, brackets without end
        return ParsedTurn(ParseOutcome.MALFORMED, text)
    if not parsed.tool_calls:
        return ParsedTurn(ParseOutcome.NO_CALL, str(parsed.content or ""))
    calls: list[Mapping[str, Any]] = []
    for call in parsed.tool_calls:
        readable = str(call.status) in ("ok", "unknown_tool") and isinstance(call.name, str)
        if not readable or not isinstance(call.arguments, dict) or not _is_plain_json([call.name, call.arguments]):
            return ParsedTurn(ParseOutcome.MALFORMED, text)
        calls.append({"name": call.name, "arguments": call.arguments})
    return ParsedTurn(ParseOutcome.CALL, text, tuple(calls))


def _is_plain_json(value: Any) -> bool:
    """True where every number is finite and every string is valid Unicode (``json`` lets ``NaN`` and half pairs pass)."""
    if isinstance(value, str):
        return not any("\ud800" <= c <= "\udfff" for c in value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(_is_plain_json(k) and _is_plain_json(v) for k, v in value.items())
    if isinstance(value, list):
        return all(_is_plain_json(v) for v in value)
    return True
