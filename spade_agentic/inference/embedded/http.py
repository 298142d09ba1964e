"""The HTTP surface: SGLang's endpoint names over aiohttp, one event loop, the model in the compute thread.

A client that hangs up takes its request with it. With an API key set, everything but ``/health`` needs it.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from ...errors import UserError, WeightUpdateFailed
from ..publishing import combined_checksum, read_weights
from .model import Weights
from .protocol import (
    BadRequest,
    Limits,
    Parsed,
    chat_body,
    error_body,
    generate_body,
    parse_chat,
    parse_generate,
)
from .requests import GenerationRequest, Result
from .scheduler import Refused, Scheduler
from .text import StopStrings, Text

__all__ = ["Service", "make_app"]

_log = logging.getLogger(__name__)
_MAX_BODY = 64 * 1024 * 1024
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


class Service:
    """Everything that the handlers need. ``folder`` is the model's; ``facts`` are shown by ``/get_server_info``."""

    def __init__(
        self, *, scheduler: Scheduler, weights: Weights, folder: Path, served_name: str, context_tokens: int,
        api_key: str | None, facts: dict[str, Any],
    ) -> None:
        self.scheduler = scheduler
        self._config = weights.config
        self._weights = weights
        self._folder = folder
        self._weights_folder = folder
        self._name = served_name
        self._api_key = api_key
        self._facts = facts
        self._text = Text(folder)
        self._limits = Limits(context_tokens, weights.config.vocab_size)
        self._updating = asyncio.Lock()

    # -- generation --------------------------------------------------------------------------------------------------------

    async def chat(self, request: web.Request) -> web.Response:
        parsed = await self._parse(request, parse_chat)
        result = await self._generate(parsed)
        return _json(chat_body(parsed, result, self._text, self._name))

    async def generate(self, request: web.Request) -> web.Response:
        parsed = await self._parse(request, parse_generate)
        result = await self._generate(parsed)
        return _json(generate_body(parsed, result, self._text))

    async def _parse(self, request: web.Request, parse: Callable[[Any, Text, Limits], Parsed]) -> Parsed:
        body = await _body(request)
        if isinstance(body, dict) and body.get("input_ids") is None and "messages" in body:
            # Rendering may load transformers, which takes seconds: not on the event loop.
            return await asyncio.to_thread(parse, body, self._text, self._limits)
        return parse(body, self._text, self._limits)

    async def _generate(self, parsed: Parsed) -> Result:
        if parsed.stops and not self._text.available:
            raise BadRequest("stop strings need a tokenizer, which this model folder has not", param="stop")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Result] = loop.create_future()

        def settle(result: Result) -> None:
            if not done.done():
                done.set_result(result)

        generation = GenerationRequest(
            parsed.request_id, parsed.prompt, parsed.sampling, lambda result: _post(loop, settle, result), wave=parsed.wave,
            watcher=StopStrings(self._text, parsed.stops) if parsed.stops else None,
        )
        try:
            await asyncio.wrap_future(self.scheduler.submit(generation))
            result = await done
        except asyncio.CancelledError:
            self.scheduler.abort(parsed.request_id)
            raise
        if result.error is not None:
            raise Refused(result.error, result.status)
        return result

    async def abort(self, request: web.Request) -> web.Response:
        body = await _body(request)
        rid, everything = body.get("rid"), body.get("abort_all") is True
        if everything or isinstance(rid, str):
            await asyncio.wrap_future(self.scheduler.abort(None if everything else rid))
        return web.Response()

    # -- flow and weights --------------------------------------------------------------------------------------------------

    async def pause(self, request: web.Request) -> web.Response:
        mode = (await _body(request)).get("mode", "abort")
        if mode not in ("abort", "retract", "in_place"):
            raise BadRequest(f"mode must be abort, retract or in_place, not {mode!r}", param="mode")
        await asyncio.wrap_future(self.scheduler.pause(mode))
        return _json({"message": f"generation is paused ({mode})", "status": "ok"})

    async def resume(self, request: web.Request) -> web.Response:
        await asyncio.wrap_future(self.scheduler.resume())
        return _json({"message": "generation goes on", "status": "ok"})

    async def flush(self, request: web.Request) -> web.Response:
        await asyncio.wrap_future(self.scheduler.flush())
        return web.Response(text="Cache flushed.\n")

    async def update_weights(self, request: web.Request) -> web.Response:
        """Swap weights between two steps. What runs goes on with them (pause with mode retract to have it recomputed)."""
        body = await _body(request)
        path, version = body.get("model_path"), body.get("weight_version")
        if not isinstance(path, str):
            raise BadRequest("model_path must be a folder", param="model_path")
        version = str(version) if version is not None else "default"
        if body.get("abort_all_requests") is True:
            await asyncio.wrap_future(self.scheduler.abort(None))
        async with self._updating:
            try:
                weights = await asyncio.to_thread(self._read, Path(path), version)
            except (UserError, WeightUpdateFailed) as error:
                return _json({"success": False, "message": str(error), "num_paused_requests": 0}, 400)
            await asyncio.wrap_future(self.scheduler.swap(weights))
            self._weights, self._weights_folder = weights, Path(path)
        _log.info("serving weights %s from %s", version, path)
        return _json({"success": True, "message": f"serving {path} as version {version}", "num_paused_requests": 0})

    def _read(self, folder: Path, version: str) -> Weights:
        return Weights(self._config, read_weights(folder), version)

    async def weights_checker(self, request: web.Request) -> web.Response:
        """Checksums of the numbers that the forward pass reads, tensor by tensor, and one over all."""
        if (await _body(request)).get("action", "checksum") != "checksum":
            raise BadRequest("action must be checksum", param="action")
        async with self._updating:
            checksums = await asyncio.to_thread(self._weights.checksums)
            version = self._weights.version
        return _json({
            "success": True, "message": "", "weight_version": version,
            "ranks": [{"checksums": checksums, "per_engine_checksum": combined_checksum(checksums)}],
        })

    # -- information -------------------------------------------------------------------------------------------------------

    async def health(self, request: web.Request) -> web.Response:
        """200 while the compute thread lives, 503 after it failed."""
        return web.Response(status=200 if self.scheduler.alive else 503)

    async def models(self, request: web.Request) -> web.Response:
        return _json({"object": "list", "data": [{
            "id": self._name, "object": "model", "created": 0, "owned_by": "spade-agentic",
            "max_model_len": self._limits.context_tokens,
        }]})

    async def model_info(self, request: web.Request) -> web.Response:
        return _json({
            "model_path": str(self._weights_folder), "served_model_name": self._name, "tokenizer_path": str(self._folder),
            "is_generation": True, "weight_version": self.scheduler.version, "model_type": self._config.model_type,
            "architectures": [self._config.architecture], "tool_call_parser": "hermes",
        })

    async def server_info(self, request: web.Request) -> web.Response:
        stats = self.scheduler.stats
        return _json({
            **self._facts, "weight_version": self.scheduler.version, "context_length": self._limits.context_tokens,
            "load": await asyncio.wrap_future(self.scheduler.load()),
            "generated_tokens": stats.generated_tokens, "decode_steps": stats.decode_steps, "waves": stats.waves,
            "busy_seconds": stats.busy_seconds,
        })

    # -- around every handler ----------------------------------------------------------------------------------------------

    @web.middleware
    async def guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Checks the key, and turns every error into OpenAI's error JSON."""
        if self._api_key is not None and request.path != "/health":
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self._api_key}".encode()):
                return _json(error_body("wrong or missing API key", status=401, kind="authentication_error"), 401)
        try:
            return await handler(request)
        except BadRequest as error:
            return _json(error_body(str(error), status=400, param=error.param, code=error.code), 400)
        except Refused as error:
            kind = "invalid_request_error" if error.status < 500 else "server_error"
            return _json(error_body(str(error), status=error.status, kind=kind), error.status)
        except web.HTTPException as error:
            return _json(error_body(error.reason, status=error.status), error.status)
        except Exception as error:
            _log.exception("a handler failed: %s %s", request.method, request.path)
            return _json(error_body(f"{type(error).__name__}: {error}", status=500, kind="server_error"), 500)


def _post(loop: asyncio.AbstractEventLoop, settle: Callable[[Result], None], result: Result) -> None:
    if not loop.is_closed():  # at shutdown the last results have nobody left to read them
        loop.call_soon_threadsafe(settle, result)


async def _body(request: web.Request) -> Any:
    raw = await request.read()
    if not raw:
        return {}
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    return body


def make_app(service: Service) -> web.Application:
    """All routes of the server."""
    app = web.Application(middlewares=[service.guard], client_max_size=_MAX_BODY)
    get, post = app.router.add_get, app.router.add_post
    get("/health", service.health)
    get("/v1/models", service.models)
    for name in ("/model_info", "/get_model_info"):
        get(name, service.model_info)
    for name in ("/server_info", "/get_server_info"):
        get(name, service.server_info)
    post("/v1/chat/completions", service.chat)
    post("/generate", service.generate)
    post("/abort_request", service.abort)
    post("/pause_generation", service.pause)
    post("/continue_generation", service.resume)
    get("/flush_cache", service.flush)
    post("/flush_cache", service.flush)
    post("/update_weights_from_disk", service.update_weights)
    post("/weights_checker", service.weights_checker)
    return app
