"""The ``embedded`` engine: the policy served from a process of its own on this machine's CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spade_agentic import EmbeddedOptions, Factory, InferenceEngine, hookimpl

__all__ = ["inference_engine"]

LOG_NAME = "engine.log"


def _build(options: EmbeddedOptions, context: Any) -> InferenceEngine:
    from spade_agentic import EmbeddedEngine

    log_file = Path(context.run_dir) / LOG_NAME if context.run_dir is not None else None
    return EmbeddedEngine(options, log_file=log_file, context_tokens=context.config.model.context_tokens)


@hookimpl
def inference_engine() -> Sequence[Factory[InferenceEngine]]:
    """The hook ``inference_engine``."""
    return [Factory("embedded", _build, EmbeddedOptions, doc="continuous batching and prefix cache on the CPU")]
