"""JSON bodies to requests and results to JSON bodies, in the dialect of OpenAI's API with SGLang's extensions.

A field that this server cannot honour is refused by name: silently ignoring a penalty or a grammar would train on a
distribution that nobody asked for.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import EngineError
from .requests import Result, SamplingParams, Wave
from .text import Text, parse_hermes

__all__ = ["BadRequest", "Limits", "Parsed", "chat_body", "error_body", "generate_body", "parse_chat", "parse_generate"]

_CHAT_FIELDS = frozenset({
    "model", "messages", "tools", "tool_choice", "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "seed",
    "stop", "stop_token_ids", "ignore_eos", "logprobs", "return_meta_info", "return_token_ids", "return_prompt_token_ids",
    "input_ids", "rid", "wave", "chat_template_kwargs", "skip_special_tokens",
})
_HARMLESS = frozenset({"user", "metadata", "store", "parallel_tool_calls", "service_tier", "safety_identifier"})
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,), "stream": (False,), "frequency_penalty": (0, 0.0), "presence_penalty": (0, 0.0), "logit_bias": ({},),
    "top_logprobs": (0,), "min_p": (0, 0.0), "repetition_penalty": (1, 1.0), "response_format": ({"type": "text"},),
}
"""Fields that are understood and have one value that means "without"."""
_SAMPLING_FIELDS = frozenset({
    "max_new_tokens", "temperature", "top_p", "top_k", "sampling_seed", "stop", "stop_token_ids", "ignore_eos",
    "skip_special_tokens",
})


class BadRequest(EngineError):
    """A body that cannot be served. ``code`` is OpenAI's word for it, ``param`` the field."""

    def __init__(self, message: str, *, param: str | None = None, code: str = "invalid_request_error") -> None:
        self.param, self.code = param, code
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may ask for."""

    context_tokens: int
    vocab_size: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """One generation as it was asked for. ``stops`` are stop strings; the rest of the fields shapes the answer."""

    request_id: str
    prompt: Any
    sampling: SamplingParams
    wave: Wave | None
    stops: tuple[str, ...]
    skip_special_tokens: bool
    logprobs: bool
    tools: bool
    token_ids: bool
    prompt_token_ids: bool
    meta_info: bool


def _refuse_fields(body: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for name, value in body.items():
        if name in known or name in _HARMLESS or value is None:
            continue
        if name not in _NEUTRAL:
            raise BadRequest(f"this server does not know the field {name!r} of {where}", param=name)
        if value not in _NEUTRAL[name]:
            raise BadRequest(f"this server cannot honour {name}={value!r}", param=name)


def _number(body: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise BadRequest(f"{name} must be a number from {low:g} to {high:g}, not {value!r}", param=name)
    return value


def _whole(body: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadRequest(f"{name} must be a whole number from {low} to {high}, not {value!r}", param=name)
    return value


def _flag(body: Mapping[str, Any], name: str, default: bool = False) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false, not {value!r}", param=name)
    return value


def _ids(value: Any, name: str, limits: Limits) -> np.ndarray[Any, np.dtype[np.int32]]:
    if not isinstance(value, list) or not value or not all(type(i) is int for i in value):
        raise BadRequest(f"{name} must be a non-empty list of token ids", param=name)
    ids = np.asarray(value, np.int64)
    if ids.min() < 0 or ids.max() >= limits.vocab_size:
        raise BadRequest(f"{name} holds an id outside of 0..{limits.vocab_size - 1}", param=name)
    return ids.astype(np.int32)


def _strings(value: Any, name: str) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value or []
    if not isinstance(values, list) or not all(isinstance(s, str) and s for s in values):
        raise BadRequest(f"{name} must be a string or a list of strings", param=name)
    return tuple(values)


def _sampling(body: Mapping[str, Any], prompt: int, limits: Limits, *, max_tokens: str, seed: str) -> SamplingParams:
    room = limits.context_tokens - prompt
    if room < 1:
        raise BadRequest(f"a prompt of {prompt} tokens fills the context of {limits.context_tokens}",
                         code="context_length_exceeded")
    wanted = _whole(body, max_tokens, min(room, 4096), 1, 2**31)
    if wanted > room:
        raise BadRequest(f"{prompt} prompt tokens and {wanted} more do not fit the context of {limits.context_tokens}",
                         param=max_tokens, code="context_length_exceeded")
    stops = body.get("stop_token_ids") or []
    if not isinstance(stops, list) or not all(type(i) is int for i in stops):
        raise BadRequest("stop_token_ids must be a list of token ids", param="stop_token_ids")
    top_k = _whole(body, "top_k", 0, -1, 2**31)
    top_p = _number(body, "top_p", 1.0, 0.0, 1.0)
    if top_p == 0:
        raise BadRequest("top_p must be above 0", param="top_p")
    return SamplingParams(
        max_tokens=wanted, temperature=_number(body, "temperature", 1.0, 0.0, 100.0), top_p=top_p, top_k=max(0, top_k),
        seed=_whole(body, seed, secrets.randbits(63), -(2**63), 2**64 - 1), stop_token_ids=tuple(stops),
        ignore_eos=_flag(body, "ignore_eos"),
    )


def _wave(body: Mapping[str, Any]) -> Wave | None:
    value = body.get("wave")
    if value is None:
        return None
    if (not isinstance(value, dict) or set(value) != {"id", "size"} or not isinstance(value["id"], str)
            or type(value["size"]) is not int or value["size"] < 1):
        raise BadRequest('wave must be {"id": string, "size": whole number from 1}', param="wave")
    return Wave(value["id"], value["size"])


def _rid(body: Mapping[str, Any], prefix: str) -> str:
    value = body.get("rid")
    if value is None:
        return f"{prefix}-{secrets.token_hex(12)}"
    if not isinstance(value, str) or not value:
        raise BadRequest("rid must be a non-empty string", param="rid")
    return value


def parse_chat(body: Any, text: Text, limits: Limits) -> Parsed:
    """A body of ``/v1/chat/completions``. Raises :class:`BadRequest` naming the field at fault."""
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    _refuse_fields(body, _CHAT_FIELDS, "a chat completion")
    tools = body.get("tools") or []
    choice = body.get("tool_choice")
    if choice not in (None, "auto", "none"):
        raise BadRequest("tool_choice may be auto or none: this server does not force calls", param="tool_choice")
    if body.get("input_ids") is not None:
        prompt = _ids(body["input_ids"], "input_ids", limits)
    else:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise BadRequest("messages must be a non-empty list of objects", param="messages")
        options = body.get("chat_template_kwargs") or {}
        try:
            prompt = np.asarray(text.render(messages, tools if choice != "none" else None, options), np.int32)
        except (EngineError, ValueError, KeyError, TypeError) as error:
            raise BadRequest(f"these messages cannot be rendered: {error}", param="messages") from error
    counted = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    return Parsed(
        request_id=_rid(body, "chatcmpl"), prompt=prompt,
        sampling=_sampling(body, len(prompt), limits, max_tokens=counted, seed="seed"), wave=_wave(body),
        stops=_strings(body.get("stop"), "stop"), skip_special_tokens=_flag(body, "skip_special_tokens", True),
        logprobs=_flag(body, "logprobs"), tools=bool(tools) and choice != "none", token_ids=_flag(body, "return_token_ids"),
        prompt_token_ids=_flag(body, "return_prompt_token_ids"), meta_info=_flag(body, "return_meta_info"),
    )


def parse_generate(body: Any, text: Text, limits: Limits) -> Parsed:
    """A body of ``/generate`` with one prompt, as ``input_ids`` or ``text``. Raises :class:`BadRequest`."""
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    _refuse_fields(body, frozenset({"input_ids", "text", "sampling_params", "return_logprob", "rid", "wave"}), "/generate")
    params = body.get("sampling_params") or {}
    _refuse_fields(params, _SAMPLING_FIELDS, "sampling_params")
    if body.get("input_ids") is not None:
        prompt = _ids(body["input_ids"], "input_ids", limits)
    elif isinstance(body.get("text"), str) and body["text"]:
        prompt = np.asarray(text.encode(body["text"]), np.int32)
    else:
        raise BadRequest("give input_ids or text", param="input_ids")
    params = {"max_new_tokens": min(128, max(1, limits.context_tokens - len(prompt))), **params}
    return Parsed(
        request_id=_rid(body, "gen"), prompt=prompt,
        sampling=_sampling(params, len(prompt), limits, max_tokens="max_new_tokens", seed="sampling_seed"), wave=_wave(body),
        stops=_strings(params.get("stop"), "stop"), skip_special_tokens=_flag(params, "skip_special_tokens", True),
        logprobs=_flag(body, "return_logprob"), tools=False, token_ids=True, prompt_token_ids=False, meta_info=True,
    )


# -- answers -----------------------------------------------------------------------------------------------------------


def _said(parsed: Parsed, result: Result, text: Text, *, skip_special_tokens: bool) -> str | None:
    """The text of a result, without its stop; ``None`` where the server has no tokenizer."""
    if not text.available:
        return None
    matched = result.finish.get("matched")
    ids = result.token_ids[:-1] if isinstance(matched, int) else result.token_ids
    said = text.decode(ids, skip_special_tokens=skip_special_tokens)
    return said[: said.index(matched)] if isinstance(matched, str) and matched in said else said


def _meta(parsed: Parsed, result: Result) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "id": result.request_id, "finish_reason": result.finish, "prompt_tokens": result.prompt_tokens,
        "completion_tokens": len(result.token_ids), "cached_tokens": result.cached_tokens,
        "weight_version": result.version, "weight_versions": _spans(result), "num_retractions": result.retractions,
    }
    if parsed.logprobs:
        pairs = zip(result.logprobs, result.token_ids, strict=True)
        meta["output_token_logprobs"] = [[logprob, token, None] for logprob, token in pairs]
    return meta


def _spans(result: Result) -> list[dict[str, Any]]:
    return [{"version": version, "start": start, "end": end} for version, start, end in result.spans]


def chat_body(parsed: Parsed, result: Result, text: Text, model: str) -> dict[str, Any]:
    """The answer to a chat completion."""
    message: dict[str, Any] = {
        "role": "assistant", "content": _said(parsed, result, text, skip_special_tokens=parsed.skip_special_tokens),
    }
    finish = result.finish["type"]
    if parsed.tools and text.available:
        # The marks of a call are special tokens in some vocabularies: they are read before they are left out.
        spoken = parse_hermes(_said(parsed, result, text, skip_special_tokens=False) or "")
        if spoken.calls:
            content = spoken.content
            if parsed.skip_special_tokens:
                content = text.decode(text.encode(content), skip_special_tokens=True).strip()
            message["content"] = content or None
            message["tool_calls"] = [
                {"id": f"call_{secrets.token_hex(12)}", "index": i, "type": "function", "function": call}
                for i, call in enumerate(spoken.calls)
            ]
            finish = "tool_calls" if finish == "stop" else finish
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish,
                              "matched_stop": result.finish.get("matched")}
    if parsed.logprobs:
        choice["logprobs"] = {"content": _token_logprobs(result, text)} if not parsed.meta_info else None
    if parsed.token_ids:
        choice["response_token_ids"] = result.token_ids
    if parsed.token_ids or parsed.prompt_token_ids:
        choice["prompt_token_ids"] = parsed.prompt.tolist()
    if parsed.meta_info:
        choice["meta_info"] = _meta(parsed, result)
    return {
        "id": result.request_id, "object": "chat.completion", "created": int(time.time()), "model": model, "choices": [choice],
        "usage": {
            "prompt_tokens": result.prompt_tokens, "completion_tokens": len(result.token_ids),
            "total_tokens": result.prompt_tokens + len(result.token_ids),
            "prompt_tokens_details": {"cached_tokens": result.cached_tokens},
        },
        "metadata": {"weight_version": result.version, "weight_versions": _spans(result)},
    }


def _token_logprobs(result: Result, text: Text) -> list[dict[str, Any]]:
    out = []
    for token, logprob in zip(result.token_ids, result.logprobs, strict=True):
        piece = text.decode([token], skip_special_tokens=False) if text.available else ""
        out.append({"token": piece, "bytes": list(piece.encode()), "logprob": logprob, "top_logprobs": []})
    return out


def generate_body(parsed: Parsed, result: Result, text: Text) -> dict[str, Any]:
    """The answer to ``/generate``."""
    said = _said(parsed, result, text, skip_special_tokens=parsed.skip_special_tokens)
    return {"text": said, "output_ids": result.token_ids, "meta_info": _meta(parsed, result)}


def error_body(message: str, *, status: int, kind: str = "invalid_request_error", param: str | None = None,
               code: str | None = None) -> dict[str, Any]:
    """An error as OpenAI's clients read it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code or str(status)}}
