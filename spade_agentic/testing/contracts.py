"""The contract tests: what every plugin of a kind must satisfy, whoever wrote it.

``CONTRACTS[hook]`` are the rules of one kind. ``check_designer(make)`` and its ten sisters run them on what ``make(folder)``
builds and raise :class:`ContractViolation` naming every rule that does not hold; ``plugin check`` runs the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .contracts_design import CURRICULUM, DESIGNER, EVALUATOR, HINT_WRITER, MEMORY, REWARD
from .contracts_engines import ENGINE, LEARNER, TRACKER
from .contracts_worlds import SANDBOX, TOOL_SIM
from .rules import ContractViolation, Make, Rule, RuleResult, run_rules

__all__ = [
    "CONTRACTS", "ContractViolation", "check_contract", "check_curriculum", "check_designer", "check_engine",
    "check_evaluator", "check_hint_writer", "check_learner", "check_memory", "check_reward", "check_sandbox", "check_tool_sim",
    "check_tracker", "run_contract",
]  # fmt: skip

CONTRACTS: Mapping[str, Sequence[Rule]] = {
    "env_designer": DESIGNER,
    "hint_writer": HINT_WRITER,
    "designer_reward": REWARD,
    "memory_store": MEMORY,
    "curriculum": CURRICULUM,
    "tool_sim": TOOL_SIM,
    "sandbox": SANDBOX,
    "inference_engine": ENGINE,
    "learner": LEARNER,
    "tracker": TRACKER,
    "evaluator": EVALUATOR,
}


def run_contract(hook: str, make: Make, *, subject: str = "") -> list[RuleResult]:
    """Every rule of a kind, with what was found. Never raises for what the plugin does."""
    return run_rules(CONTRACTS[hook], make, subject=subject or hook)


def check_contract(hook: str, make: Any) -> None:
    """Raise :class:`ContractViolation` naming every rule of ``hook`` that does not hold for what ``make`` builds."""
    broken = [result for result in run_contract(hook, make) if not result.passed]
    if broken:
        raise ContractViolation("\n".join(f"{result.rule}: {result.detail}" for result in broken))


def check_designer(make: Make) -> None:
    """Designers (``env_designer``)."""
    check_contract("env_designer", make)


def check_hint_writer(make: Make) -> None:
    """Hint writers (``hint_writer``)."""
    check_contract("hint_writer", make)


def check_reward(make: Make) -> None:
    """Rewards of the designer (``designer_reward``)."""
    check_contract("designer_reward", make)


def check_memory(make: Make) -> None:
    """Memories (``memory_store``)."""
    check_contract("memory_store", make)


def check_curriculum(make: Make) -> None:
    """Curricula (``curriculum``)."""
    check_contract("curriculum", make)


def check_tool_sim(make: Make) -> None:
    """Tool simulators (``tool_sim``)."""
    check_contract("tool_sim", make)


def check_sandbox(make: Make) -> None:
    """Sandboxes (``sandbox``)."""
    check_contract("sandbox", make)


def check_engine(make: Make) -> None:
    """Inference engines (``inference_engine``). The rules start them on a :func:`~spade_agentic.testing.tiny_model`."""
    check_contract("inference_engine", make)


def check_learner(make: Make) -> None:
    """Learners (``learner``). ``make`` builds one on a :func:`~spade_agentic.testing.tiny_model`."""
    check_contract("learner", make)


def check_tracker(make: Make) -> None:
    """Trackers (``tracker``)."""
    check_contract("tracker", make)


def check_evaluator(make: Make) -> None:
    """Evaluators (``evaluator``)."""
    check_contract("evaluator", make)
