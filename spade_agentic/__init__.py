"""spade-agentic: one language model designs its own training worlds and learns to act in them.

Everything public is a name of this package; the table below says which module defines it. Names are imported when they
are first used, so ``import spade_agentic`` stays light. A plugin needs nothing but these names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS: dict[str, str] = {
    # errors
    "ConfigError": "spade_agentic.errors",
    "EngineError": "spade_agentic.errors",
    "EngineUnavailable": "spade_agentic.errors",
    "EnvironmentFault": "spade_agentic.errors",
    "EnvironmentTimeout": "spade_agentic.errors",
    "LearnerError": "spade_agentic.errors",
    "PluginError": "spade_agentic.errors",
    "RunDirError": "spade_agentic.errors",
    "SandboxError": "spade_agentic.errors",
    "SandboxUnavailable": "spade_agentic.errors",
    "SpadeError": "spade_agentic.errors",
    "StoreError": "spade_agentic.errors",
    "UserError": "spade_agentic.errors",
    "WeightUpdateFailed": "spade_agentic.errors",
    # records
    "Arm": "spade_agentic.hooks.records",
    "Completion": "spade_agentic.hooks.records",
    "Draft": "spade_agentic.hooks.records",
    "Environment": "spade_agentic.hooks.records",
    "FinishReason": "spade_agentic.hooks.records",
    "GateReport": "spade_agentic.hooks.records",
    "ParseOutcome": "spade_agentic.hooks.records",
    "Play": "spade_agentic.hooks.records",
    "Program": "spade_agentic.hooks.records",
    "ProgramKind": "spade_agentic.hooks.records",
    "Refusal": "spade_agentic.hooks.records",
    "Regret": "spade_agentic.hooks.records",
    "Role": "spade_agentic.hooks.records",
    "Sampling": "spade_agentic.hooks.records",
    "Segment": "spade_agentic.hooks.records",
    "Skill": "spade_agentic.hooks.records",
    "StopReason": "spade_agentic.hooks.records",
    "Trajectory": "spade_agentic.hooks.records",
    "Turn": "spade_agentic.hooks.records",
    # plugin kinds
    "Curriculum": "spade_agentic.hooks.kinds",
    "Designer": "spade_agentic.hooks.kinds",
    "DesignRequest": "spade_agentic.hooks.kinds",
    "DesignerReward": "spade_agentic.hooks.kinds",
    "EnvironmentHistory": "spade_agentic.hooks.kinds",
    "Evaluator": "spade_agentic.hooks.kinds",
    "Factory": "spade_agentic.hooks.kinds",
    "HintWriter": "spade_agentic.hooks.kinds",
    "InferenceEngine": "spade_agentic.hooks.kinds",
    "Learner": "spade_agentic.hooks.kinds",
    "MemoryEntry": "spade_agentic.hooks.kinds",
    "MemoryStore": "spade_agentic.hooks.kinds",
    "Options": "spade_agentic.hooks.kinds",
    "PolicySession": "spade_agentic.hooks.kinds",
    "RewardInput": "spade_agentic.hooks.kinds",
    "Sandbox": "spade_agentic.hooks.kinds",
    "SandboxPlay": "spade_agentic.hooks.kinds",
    "SandboxProgram": "spade_agentic.hooks.kinds",
    "Stateful": "spade_agentic.hooks.kinds",
    "StepObservation": "spade_agentic.hooks.kinds",
    "ToolSim": "spade_agentic.hooks.kinds",
    "Tracker": "spade_agentic.hooks.kinds",
    "TrainSequence": "spade_agentic.hooks.kinds",
    # environments
    "Instruction": "spade_agentic.envs.contract",
    "TextEnv": "spade_agentic.envs.contract",
    "ToolCall": "spade_agentic.envs.contract",
    "ToolEnv": "spade_agentic.envs.contract",
    "ToolError": "spade_agentic.envs.contract",
    "load_environment": "spade_agentic.envs.contract",
    "tool": "spade_agentic.envs.contract",
    # hooks
    "BuildContext": "spade_agentic.hooks.manager",
    "PluginManager": "spade_agentic.hooks.manager",
    "hookimpl": "spade_agentic.hooks.specs",
    # runs and evaluation
    "EvalInstance": "spade_agentic.evals.protocol",
    "EvalRunner": "spade_agentic.evals.protocol",
    "HeldOutEvaluator": "spade_agentic.evals.heldout",
    "Interval": "spade_agentic.evals.stats",
    "MetricsRow": "spade_agentic.runs.reader",
    "StoreReader": "spade_agentic.runs.reader",
    "clustered_wilson": "spade_agentic.evals.stats",
    "committed_metrics": "spade_agentic.runs.reader",
    "last_committed_step": "spade_agentic.runs.reader",
    # config
    "PluginRef": "spade_agentic.config.schema",
    "RunConfig": "spade_agentic.config.schema",
    "load_config": "spade_agentic.config.load",
    "resolve_model": "spade_agentic.config.load",
    # learning
    "TorchLearner": "spade_agentic.learning.torch_backend",
    "TorchOptions": "spade_agentic.learning.options",
}

__all__ = [*sorted(_EXPORTS), "__version__"]

if TYPE_CHECKING:
    from spade_agentic.config.load import load_config as load_config


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    try:
        module = _EXPORTS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
