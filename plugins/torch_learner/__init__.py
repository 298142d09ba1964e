"""The ``torch`` learner: GRPO in one process, on a CPU or one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spade_agentic import Factory, Learner, TorchOptions, hookimpl, resolve_model

__all__ = ["learner"]


def _build(options: TorchOptions, context: Any) -> Learner:
    from spade_agentic import TorchLearner

    return TorchLearner(resolve_model(context.config.model.path), options, seed=context.run_seed)


@hookimpl
def learner() -> Sequence[Factory[Learner]]:
    return [Factory("torch", _build, TorchOptions, doc="AdamW in one process, on a CPU or one GPU; packed, shared prefixes")]
