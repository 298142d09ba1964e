"""One generation request inside the server: what was asked, what came so far, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["GenerationRequest", "Result", "SamplingParams", "Watcher", "Wave"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to draw. ``temperature`` 0 is greedy, ``top_k`` 0 and ``top_p`` 1 are no limit; ``seed`` is 64 bits."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class Wave:
    """Lockstep: the ``size`` requests that name ``wave_id`` start together, in the order of their ids."""

    wave_id: str
    size: int


class Watcher(Protocol):
    """Sees every token of one request in the compute thread; returns the stop string that ends it, or ``None``."""

    def push(self, token: int, logprob: float) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Result:
    """How a request ended. ``spans`` are ``(version, start, end)`` over the sampled tokens.

    ``finish`` is SGLang's finish reason. ``error`` is set, with an HTTP ``status``, where the request failed.
    """

    request_id: str
    token_ids: list[int]
    logprobs: list[float]
    spans: list[tuple[str, int, int]]
    finish: dict[str, Any]
    prompt_tokens: int
    cached_tokens: int
    retractions: int
    version: str
    error: str | None = None
    status: int = 200


@dataclass(slots=True, eq=False)
class GenerationRequest:
    """A request and its progress. ``prompt`` is int32. ``deliver`` is called once, in the compute thread."""

    request_id: str
    prompt: npt.NDArray[np.int32]
    sampling: SamplingParams
    deliver: Callable[[Result], None]
    wave: Wave | None = None
    watcher: Watcher | None = None
    # progress, kept when the request is retracted from the batch
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    cached_tokens: int = 0
    admitted: bool = False
    retractions: int = 0

    def known_tokens(self) -> npt.NDArray[np.int32]:
        """Prompt and sampled tokens so far: what must be in the row before the next token is drawn."""
        if not self.token_ids:
            return self.prompt
        return np.concatenate([self.prompt, np.asarray(self.token_ids, np.int32)])

    def add_span(self, version: str, end: int) -> None:
        """Record that the tokens up to ``end`` that no span covers yet came from ``version``."""
        start = self.spans[-1][2] if self.spans else 0
        if end <= start:
            return
        if self.spans and self.spans[-1][0] == version:
            self.spans[-1] = (version, self.spans[-1][1], end)
        else:
            self.spans.append((version, start, end))

    def result(self, finish: dict[str, Any], version: str, error: str | None = None, status: int = 200) -> Result:
        return Result(
            request_id=self.request_id, token_ids=self.token_ids, logprobs=self.logprobs, spans=self.spans,
            finish=finish, prompt_tokens=len(self.prompt), cached_tokens=self.cached_tokens,
            retractions=self.retractions, version=self.spans[-1][0] if self.spans else version, error=error,
            status=status,
        )
