"""For the tests of plugins: fakes of what a plugin talks to, sample records, a tiny model, and the contract tests.

``policy``     :class:`ScriptedPolicy`, a policy session that answers from a script
``sandbox``    :class:`InProcessSandbox`, which runs programs in this very process (unsafe: for tests only)
``runner``     :class:`ScriptedRunner`, plays for an evaluator without a model
``models``     :func:`tiny_model`, a random Qwen3 of two layers with a small tokenizer
``samples``    programs, plays, histories, drafts, sequences
``contracts``  what every plugin of a kind must satisfy, as ``check_designer`` and its ten sisters
``checking``   the same for a whole plugin, as ``plugin check`` runs it
``skeleton``   what ``plugin new`` writes
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .contracts import (
        ContractViolation as ContractViolation,
        check_curriculum as check_curriculum,
        check_designer as check_designer,
        check_engine as check_engine,
        check_evaluator as check_evaluator,
        check_hint_writer as check_hint_writer,
        check_learner as check_learner,
        check_memory as check_memory,
        check_reward as check_reward,
        check_sandbox as check_sandbox,
        check_tool_sim as check_tool_sim,
        check_tracker as check_tracker,
    )
    from .models import tiny_model as tiny_model
    from .policy import Scripted as Scripted, ScriptedPolicy as ScriptedPolicy
    from .runner import ScriptedRunner as ScriptedRunner
    from .samples import (
        sample_completion as sample_completion,
        sample_draft as sample_draft,
        sample_entry as sample_entry,
        sample_environment as sample_environment,
        sample_history as sample_history,
        sample_play as sample_play,
        sample_program as sample_program,
        sample_request as sample_request,
        sample_reward_input as sample_reward_input,
        sample_sequences as sample_sequences,
        sample_text_program as sample_text_program,
    )
    from .sandbox import InProcessSandbox as InProcessSandbox

_EXPORTS: dict[str, str] = {
    "ContractViolation": "contracts",
    "InProcessSandbox": "sandbox",
    "Scripted": "policy",
    "ScriptedPolicy": "policy",
    "ScriptedRunner": "runner",
    "check_curriculum": "contracts",
    "check_designer": "contracts",
    "check_engine": "contracts",
    "check_evaluator": "contracts",
    "check_hint_writer": "contracts",
    "check_learner": "contracts",
    "check_memory": "contracts",
    "check_reward": "contracts",
    "check_sandbox": "contracts",
    "check_tool_sim": "contracts",
    "check_tracker": "contracts",
    "sample_completion": "samples",
    "sample_draft": "samples",
    "sample_entry": "samples",
    "sample_environment": "samples",
    "sample_history": "samples",
    "sample_play": "samples",
    "sample_program": "samples",
    "sample_request": "samples",
    "sample_reward_input": "samples",
    "sample_sequences": "samples",
    "sample_text_program": "samples",
    "tiny_model": "models",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    """Import a name when it is first used (PEP 562): a test of a reward needs no torch."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value
