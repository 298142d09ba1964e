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
    "Reserving": "spade_agentic.hooks.kinds",
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
    # inference
    "EmbeddedEngine": "spade_agentic.inference.engine",
    "EmbeddedOptions": "spade_agentic.inference.options",
    "PolicyClient": "spade_agentic.inference.client",
    # sandboxes
    "SandboxOptions": "spade_agentic.sandbox.options",
    "AutoSandbox": "spade_agentic.sandbox.backend",
    "BubblewrapSandbox": "spade_agentic.sandbox.backend",
    "ProcessSandbox": "spade_agentic.sandbox.backend",
    "sandbox_for_run": "spade_agentic.sandbox.for_run",
    # learning
    "TorchLearner": "spade_agentic.learning.torch_backend",
    "TorchOptions": "spade_agentic.learning.options",
}

__all__ = [*sorted(_EXPORTS), "__version__"]

if TYPE_CHECKING:
    # What the table says, for type checkers.
    from spade_agentic.config.load import load_config as load_config, resolve_model as resolve_model
    from spade_agentic.config.schema import PluginRef as PluginRef, RunConfig as RunConfig
    from spade_agentic.envs.contract import (
        Instruction as Instruction,
        TextEnv as TextEnv,
        ToolCall as ToolCall,
        ToolEnv as ToolEnv,
        ToolError as ToolError,
        load_environment as load_environment,
        tool as tool,
    )
    from spade_agentic.errors import (
        ConfigError as ConfigError,
        EngineError as EngineError,
        EngineUnavailable as EngineUnavailable,
        EnvironmentFault as EnvironmentFault,
        EnvironmentTimeout as EnvironmentTimeout,
        LearnerError as LearnerError,
        PluginError as PluginError,
        RunDirError as RunDirError,
        SandboxError as SandboxError,
        SandboxUnavailable as SandboxUnavailable,
        SpadeError as SpadeError,
        StoreError as StoreError,
        UserError as UserError,
        WeightUpdateFailed as WeightUpdateFailed,
    )
    from spade_agentic.evals.heldout import HeldOutEvaluator as HeldOutEvaluator
    from spade_agentic.evals.protocol import EvalInstance as EvalInstance, EvalRunner as EvalRunner
    from spade_agentic.evals.stats import Interval as Interval, clustered_wilson as clustered_wilson
    from spade_agentic.hooks.kinds import (
        Curriculum as Curriculum,
        Designer as Designer,
        DesignerReward as DesignerReward,
        DesignRequest as DesignRequest,
        EnvironmentHistory as EnvironmentHistory,
        Evaluator as Evaluator,
        Factory as Factory,
        HintWriter as HintWriter,
        InferenceEngine as InferenceEngine,
        Learner as Learner,
        MemoryEntry as MemoryEntry,
        MemoryStore as MemoryStore,
        Options as Options,
        PolicySession as PolicySession,
        Reserving as Reserving,
        RewardInput as RewardInput,
        Sandbox as Sandbox,
        SandboxPlay as SandboxPlay,
        SandboxProgram as SandboxProgram,
        Stateful as Stateful,
        StepObservation as StepObservation,
        ToolSim as ToolSim,
        Tracker as Tracker,
        TrainSequence as TrainSequence,
    )
    from spade_agentic.hooks.manager import BuildContext as BuildContext, PluginManager as PluginManager
    from spade_agentic.hooks.records import (
        Arm as Arm,
        Completion as Completion,
        Draft as Draft,
        Environment as Environment,
        FinishReason as FinishReason,
        GateReport as GateReport,
        ParseOutcome as ParseOutcome,
        Play as Play,
        Program as Program,
        ProgramKind as ProgramKind,
        Refusal as Refusal,
        Regret as Regret,
        Role as Role,
        Sampling as Sampling,
        Segment as Segment,
        Skill as Skill,
        StopReason as StopReason,
        Trajectory as Trajectory,
        Turn as Turn,
    )
    from spade_agentic.hooks.specs import hookimpl as hookimpl
    from spade_agentic.inference.client import PolicyClient as PolicyClient
    from spade_agentic.inference.engine import EmbeddedEngine as EmbeddedEngine
    from spade_agentic.inference.options import EmbeddedOptions as EmbeddedOptions
    from spade_agentic.learning.options import TorchOptions as TorchOptions
    from spade_agentic.learning.torch_backend import TorchLearner as TorchLearner
    from spade_agentic.runs.reader import (
        MetricsRow as MetricsRow,
        StoreReader as StoreReader,
        committed_metrics as committed_metrics,
        last_committed_step as last_committed_step,
    )
    from spade_agentic.sandbox.backend import (
        AutoSandbox as AutoSandbox,
        BubblewrapSandbox as BubblewrapSandbox,
        ProcessSandbox as ProcessSandbox,
    )
    from spade_agentic.sandbox.for_run import sandbox_for_run as sandbox_for_run
    from spade_agentic.sandbox.options import SandboxOptions as SandboxOptions


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
