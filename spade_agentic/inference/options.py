"""The options of the embedded engine. They are here so that a configuration can be checked without importing a client."""

from __future__ import annotations

from pydantic import Field

from ..hooks.kinds import Options

__all__ = ["EmbeddedOptions"]


class EmbeddedOptions(Options):
    """Options of the embedded engine."""

    threads: int | None = Field(None, ge=1, description="CPU threads of the forward pass; null: two, or one on a single core")
    max_batch: int = Field(256, ge=1, description="requests that run at once")
    cache_tokens: int = Field(65536, ge=1024, description="tokens that the prefix cache holds")
    start_timeout_s: float = Field(120.0, gt=0, description="from starting the process until it listens")
    request_timeout_s: float = Field(600.0, gt=0, description="one completion, waiting for its wave included")
    retries: int = Field(2, ge=0, description="how often a request whose connection failed is sent again")
