"""Held-out evaluation: the policy on instances that are never trained on.

An evaluator (hook ``evaluator``) is built once and asked at chosen steps: ``await evaluator.evaluate(runner, step=step)``.
``runner`` is an :class:`EvalRunner`, which the self-play loop provides::

    class EvalRunner(Protocol):
        sampling: Sampling                                   # the agent's sampling in training
        async def play(self, instances, repeats, arm, sampling, *, purpose) -> list[Play]: ...
        # instances: (program, seed) pairs; len(instances) * repeats plays; play.env_id == program.program_id

The answer is a flat dictionary with JSON-able values. Floats and integers in it are metrics, named
``heldout/...``; anything else (such as counts per instance) goes to the store only:
``recorder.record_evaluation(step=step, name="heldout", result=answer)``.
"""

from __future__ import annotations

from .heldout import HeldOutEvaluator
from .protocol import EvalInstance, EvalRunner
from .stats import (
    Interval,
    clustered_wilson,
    paired_difference,
    pass_at_k,
    pass_hat_k,
    wilson,
)

__all__ = [
    "EvalInstance",
    "EvalRunner",
    "HeldOutEvaluator",
    "Interval",
    "clustered_wilson",
    "paired_difference",
    "pass_at_k",
    "pass_hat_k",
    "wilson",
]
