"""The policy client: token ids in, token ids, log-probabilities and weight versions out, over ``openai.AsyncOpenAI``.

It speaks to every server of the OpenAI/SGLang dialect, so a laptop run and a cluster run are one code path. Requests go
through openai's client on its aiohttp transport; raw answers are read with orjson, because building pydantic models of a few
hundred log-probabilities costs more than sampling them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import httpx2
import openai
import orjson

from ..errors import ContextOverflow, EngineError, EngineUnavailable, WeightUpdateFailed
from ..hooks.records import Completion, FinishReason, Sampling

__all__ = ["PolicyClient"]

_PLACEHOLDER = ({"role": "user", "content": "."},)
"""SGLang wants messages even where ``input_ids`` take their place."""


class PolicyClient:
    """One server. ``base_url`` is its root, without ``/v1``.

    ``timeout_s`` bounds one completion from sending to the last byte; waiting for the other members of a wave counts.
    ``retries`` is how often a request is sent again after its connection failed. A request that cannot have reached the
    server is always safe to repeat; one that may have is repeated only outside of waves, where its seed makes the second
    answer the same as the first.
    """

    def __init__(
        self, base_url: str, *, model: str = "default", api_key: str = "none", timeout_s: float = 600.0,
        connect_timeout_s: float = 10.0, max_connections: int = 1024, retries: int = 2,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._model = model
        self._retries = retries
        timeout = httpx2.Timeout(timeout_s, connect=connect_timeout_s, pool=timeout_s)
        limits = httpx2.Limits(max_connections=max_connections, max_keepalive_connections=max_connections,
                               keepalive_expiry=600.0)
        # Proxies of the environment are for the internet; an inference server is addressed directly.
        self._http = openai.DefaultAioHttpClient(timeout=timeout, limits=limits, trust_env=False)
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._openai = openai.AsyncOpenAI(
            base_url=self.base_url + "/v1", api_key=api_key, http_client=self._http, timeout=timeout, max_retries=0,
        )
        self._chat = self._openai.chat.completions.with_raw_response

    async def close(self) -> None:
        await self._openai.close()

    # -- completions -------------------------------------------------------------------------------------------------------

    async def complete(
        self, token_ids: Sequence[int], sampling: Sampling, *, seed: int, request_id: str, stop_token_ids: Sequence[int],
        wave: tuple[str, int] | None = None,
    ) -> Completion:
        """Sample one completion of ``token_ids``.

        Raises ContextOverflow where prompt and ``max_tokens`` do not fit the server's context, EngineUnavailable where no
        answer comes, EngineError where the server refuses or answers nonsense.
        """
        extra: dict[str, Any] = {
            "input_ids": list(token_ids), "rid": request_id, "stop_token_ids": list(stop_token_ids),
            "return_meta_info": True, "top_k": sampling.top_k or -1,
        }
        if wave is not None:
            extra["wave"] = {"id": wave[0], "size": wave[1]}
        for attempt in range(self._retries + 1):
            try:
                response = await self._chat.create(
                    model=self._model, messages=_PLACEHOLDER, temperature=sampling.temperature,  # type: ignore[arg-type]
                    top_p=sampling.top_p, max_tokens=sampling.max_tokens, seed=seed, logprobs=True, extra_body=extra,
                )
                return _completion(response.content, request_id)
            except openai.APIStatusError as error:
                raise _status_error(error.status_code, error.response.content, request_id) from error
            except openai.APIConnectionError as error:
                if attempt == self._retries or not _repeatable(error, in_wave=wave is not None):
                    raise EngineUnavailable(
                        f"no answer from {self.base_url} to {request_id}: {_root(error)!r}"
                    ) from error
        raise AssertionError("unreachable")

    # -- administration ----------------------------------------------------------------------------------------------------

    async def health(self) -> bool:
        """Whether the server answers and says that it is well."""
        try:
            return (await self._http.get(self.base_url + "/health")).status_code == 200
        except httpx2.TransportError:
            return False

    async def model_info(self) -> dict[str, Any]:
        """SGLang's ``/model_info``: among others ``weight_version`` and ``model_path``."""
        return await self._admin("GET", "/model_info")

    async def server_info(self) -> dict[str, Any]:
        return await self._admin("GET", "/server_info")

    async def pause(self, mode: str = "retract") -> None:
        """Stop generation. ``retract`` recomputes what runs, from its tokens, when generation goes on."""
        await self._admin("POST", "/pause_generation", {"mode": mode})

    async def resume(self) -> None:
        await self._admin("POST", "/continue_generation", {})

    async def flush_cache(self) -> None:
        await self._admin("POST", "/flush_cache", {})

    async def abort(self, request_id: str | None = None) -> None:
        """End one request, or all of them, with the tokens they have."""
        await self._admin("POST", "/abort_request", {"abort_all": True} if request_id is None else {"rid": request_id})

    async def update_weights(self, weights_dir: str, version: str) -> None:
        """Load a safetensors folder. Raises WeightUpdateFailed where the server keeps what it had."""
        body = {"model_path": weights_dir, "weight_version": version, "flush_cache": True}
        try:
            answer = await self._admin("POST", "/update_weights_from_disk", body)
        except EngineUnavailable:
            raise
        except EngineError as error:
            raise WeightUpdateFailed(f"{self.base_url} did not load {weights_dir} as version {version}: {error}") from error
        if answer.get("success") is not True:
            raise WeightUpdateFailed(f"{self.base_url} did not load {weights_dir}: {answer.get('message')}")

    async def weights_checksum(self) -> str:
        """One checksum over all tensors that the server computes with (see ``publishing.combined_checksum``)."""
        answer = await self._admin("POST", "/weights_checker", {"action": "checksum"})
        return str(answer["ranks"][0]["per_engine_checksum"])

    async def _admin(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            response = await self._http.request(
                method, self.base_url + path, headers={**self._headers, "Content-Type": "application/json"},
                content=orjson.dumps(body) if body is not None else None,
            )
        except httpx2.TransportError as error:
            raise EngineUnavailable(f"no answer from {self.base_url}{path}: {_root(error)!r}") from error
        if response.status_code >= 400:
            raise _status_error(response.status_code, response.content, path)
        if not response.headers.get("content-type", "").startswith("application/json"):
            return {}
        answer = orjson.loads(response.content)
        return answer if isinstance(answer, dict) else {}


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _repeatable(error: BaseException, *, in_wave: bool) -> bool:
    root = _root(error)
    if isinstance(root, aiohttp.ClientConnectorError):
        return True  # no connection was made: nothing was sent
    return not in_wave and isinstance(root, aiohttp.ClientConnectionError) and not isinstance(root, TimeoutError)


def _status_error(status: int, content: bytes, what: str) -> EngineError:
    """The error of ours for an HTTP error, whose body may be OpenAI's form or either of SGLang's."""
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError:
        body = {}
    detail = body.get("error", body) if isinstance(body, dict) else {}
    message = str(detail.get("message", "") if isinstance(detail, dict) else detail) or content[:200].decode(errors="replace")
    code = detail.get("code") if isinstance(detail, dict) else None
    if code == "context_length_exceeded" or "context length" in message:
        return ContextOverflow(f"{what}: {message}")
    if status in (502, 503, 504):
        return EngineUnavailable(f"{what}: {status} {message}")
    return EngineError(f"{what}: {status} {message}")


def _completion(content: bytes, request_id: str) -> Completion:
    try:
        meta = orjson.loads(content)["choices"][0]["meta_info"]
        pairs = meta["output_token_logprobs"]
        ids, logprobs = tuple(int(p[1]) for p in pairs), tuple(float(p[0]) for p in pairs)
        versions: list[int] = []
        for span in meta["weight_versions"]:
            versions += [int(span["version"])] * (int(span["end"]) - int(span["start"]))
        if len(versions) != len(ids):
            raise ValueError(f"{len(ids)} tokens, but weight versions of {len(versions)}")
        return Completion(
            ids, logprobs, tuple(versions), FinishReason(meta["finish_reason"]["type"]),
            prompt_tokens=int(meta["prompt_tokens"]), cached_tokens=int(meta.get("cached_tokens") or 0),
        )
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError) as error:
        raise EngineError(f"{request_id}: the server's answer cannot be read: {error}") from error
