"""Text in and out: the model folder's tokenizer and chat template, stop strings, and Hermes tool calls.

Requests in token ids need none of this beyond decoding, which the ``tokenizers`` library does alone; the chat template
loads ``transformers`` when the first conversation comes as messages.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ...errors import EngineError

__all__ = ["ParsedMessage", "StopStrings", "Text", "parse_hermes"]

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """What an assistant said: free text and calls ``{"name", "arguments" (JSON text)}``."""

    content: str
    calls: tuple[dict[str, str], ...]


def parse_hermes(text: str) -> ParsedMessage:
    """Split ``text`` into free text and its ``<tool_call>`` blocks.

    A block that is not closed, not JSON, or not an object with a name and an object of arguments stays in the free text: it
    is no call, and nobody guesses what it meant.
    """
    kept: list[str] = []
    calls: list[dict[str, str]] = []
    rest = text
    while True:
        before, opened, after = rest.partition(_OPEN)
        kept.append(before)
        if not opened:
            break
        inner, closed, rest = after.partition(_CLOSE)
        call = _call(inner) if closed else None
        if call is not None:
            calls.append(call)
        else:
            kept.append(_OPEN + inner + closed)
    return ParsedMessage("".join(kept).strip() if calls else text, tuple(calls))


def _call(inner: str) -> dict[str, str] | None:
    try:
        value = orjson.loads(inner)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        return None
    return {"name": value["name"], "arguments": orjson.dumps(arguments).decode()}


class Text:
    """The tokenizer of one model folder. ``available`` is false where the folder has none: then only token ids are served."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._templating: Any = None
        self._tokenizer: Any = None
        path = folder / "tokenizer.json"
        if path.is_file():
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_file(str(path))

    @property
    def available(self) -> bool:
        return self._tokenizer is not None

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of ``token_ids``. Raises :class:`EngineError` where the folder has no tokenizer."""
        return str(self._needed().decode(list(token_ids), skip_special_tokens=skip_special_tokens))

    def encode(self, text: str) -> list[int]:
        """Ids of ``text`` as it stands, with no tokens added."""
        return list(self._needed().encode(text, add_special_tokens=False).ids)

    def render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, options: Mapping[str, Any]
    ) -> list[int]:
        """The ids of a conversation up to where the assistant speaks, by the folder's chat template.

        ``options`` are variables of the template. Raises :class:`EngineError` where there is no template or it refuses.
        """
        self._needed()
        with self._lock:
            if self._templating is None:
                from transformers import AutoTokenizer

                self._templating = AutoTokenizer.from_pretrained(str(self._folder), local_files_only=True)
        try:
            ids = self._templating.apply_chat_template(
                [_with_object_arguments(m) for m in messages], tools=list(tools) if tools else None,
                add_generation_prompt=True, tokenize=True, return_dict=False, **options,
            )
        except Exception as error:  # templates are programs of their own: whatever they raise, the request is at fault
            raise EngineError(f"the chat template refuses this conversation: {error}") from error
        return [int(i) for i in ids]

    def _needed(self) -> Any:
        if self._tokenizer is None:
            raise EngineError(f"{self._folder} has no tokenizer.json: this server takes and gives token ids only")
        return self._tokenizer


def _with_object_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's messages carry a call's arguments as JSON text; chat templates expect an object."""
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    out = []
    for call in calls:
        function = dict(call["function"])
        if isinstance(function.get("arguments"), str):
            function["arguments"] = orjson.loads(function["arguments"])
        out.append({**call, "function": function})
    return {**message, "tool_calls": out}


class StopStrings:
    """A watcher that ends a request when its text holds one of ``stops``."""

    def __init__(self, text: Text, stops: Sequence[str]) -> None:
        self._text, self._stops = text, tuple(stops)
        self._ids: list[int] = []

    def push(self, token: int, logprob: float) -> str | None:
        """Takes the next token; returns the stop string that is there now, or ``None``."""
        self._ids.append(token)
        # Every character takes at least one byte and no token is empty: the match lies in the last tokens.
        said = self._text.decode(self._ids[-4 * max(len(s) for s in self._stops) - 4 :])
        return next((s for s in self._stops if s in said), None)
