"""What a contract rule is made of: a claim (its docstring), a way to make the object, and a way to say that it fails."""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "ContractViolation", "Make", "Rule", "RuleResult", "Subject", "claim_of", "flat_numbers", "is_json", "require", "run_rules",
]

Make = Callable[[Path], Any]
"""Builds a fresh object of a kind; the path is an empty folder that may serve it as run directory."""

RULE_TIMEOUT_S = 180.0


class ContractViolation(AssertionError):
    """A plugin object does not do what every object of its kind must do."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a rule looks at. ``folder`` is the rule's own; ``make()`` builds another object in it."""

    build: Make
    folder: Path

    def make(self) -> Any:
        return self.build(self.folder)


Rule = Callable[[Subject], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Whether one rule holds for one object. ``detail`` says what was found where it does not."""

    subject: str
    rule: str
    passed: bool
    detail: str = ""


def claim_of(rule: Rule) -> str:
    """A rule's claim: the first line of its docstring, without the full stop."""
    return (rule.__doc__ or rule.__name__).strip().splitlines()[0].rstrip(".")


def require(holds: bool, detail: str) -> None:
    """Raise ContractViolation with ``detail`` unless ``holds``."""
    if not holds:
        raise ContractViolation(detail)


def run_rules(rules: Sequence[Rule], build: Make, *, subject: str) -> list[RuleResult]:
    """Check every rule on fresh objects, each in a folder and an event loop of its own."""
    return [_run_rule(rule, build, subject) for rule in rules]


def _run_rule(rule: Rule, build: Make, subject: str) -> RuleResult:
    with tempfile.TemporaryDirectory(prefix="spade-agentic-") as folder:
        try:
            asyncio.run(asyncio.wait_for(_awaited(rule(Subject(build, Path(folder)))), RULE_TIMEOUT_S))
        except ContractViolation as violation:
            return RuleResult(subject, claim_of(rule), False, str(violation))
        except Exception as error:
            # Whatever a plugin raises where it should not is a finding about it, and the other rules are still of interest.
            return RuleResult(subject, claim_of(rule), False, f"{type(error).__name__}: {error}")
    return RuleResult(subject, claim_of(rule), True)


async def _awaited(work: Awaitable[None]) -> None:
    await work


# --- what several rules ask ------------------------------------------------------------------------------------------


def is_json(value: Any) -> bool:
    """Whether ``value`` comes back equal from JSON: then a checkpoint can hold it."""
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except (TypeError, ValueError):
        return False


def flat_numbers(metrics: Any) -> list[str]:
    """What is wrong with a mapping of metrics: names that are no text, values that are no finite number."""
    if not isinstance(metrics, dict):
        return [f"it is {type(metrics).__name__}, not a dict"]
    wrong = [f"{key!r} is not a name" for key in metrics if not isinstance(key, str)]
    for key, value in metrics.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            wrong.append(f"{key} is {value!r}")
    return wrong
