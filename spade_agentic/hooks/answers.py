"""What plugins answer, checked where it comes in: a wrong answer is the plugin's, and is named as its own.

Without these checks a wrong answer would break something of ours, far away and much later.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from spade_agentic.errors import PluginError

from .kinds import DesignerReward, RewardInput
from .records import Completion, Draft, Program, Refusal, Skill

__all__ = [
    "GO_ON", "check_completion", "check_draft", "check_evaluation", "check_hint", "check_metrics", "check_samples",
    "check_skills", "place_of", "reward_of", "wrong_answer",
]

GO_ON = "mend the plugin, then continue with --resume: everything up to the last committed step is kept"


def wrong_answer(part: Any, method: str, answer: Any, wanted: str) -> PluginError:
    """The error of a plugin's object whose ``method`` answered something else than ``wanted``."""
    shown = repr(answer)
    shown = shown if len(shown) <= 120 else shown[:117] + "..."
    return PluginError(f"{type(part).__name__}.{method} answered {shown}, not {wanted}", where=place_of(part), todo=GO_ON)


def place_of(part: Any) -> str:
    """Where the class of a plugin's object is written: file and line, else the module."""
    kind = part if isinstance(part, type) else type(part)
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):
        return f"{kind.__module__}.{kind.__qualname__}"


def check_draft(designer: Any, draft: Any, draft_id: str) -> Draft:
    """The draft that was asked for as ``draft_id``. Raises :class:`PluginError`."""
    if not isinstance(draft, Draft):
        raise wrong_answer(designer, "design", draft, "a Draft")
    if draft.draft_id != draft_id:
        raise wrong_answer(designer, "design", draft.draft_id, f"the draft {draft_id} that was asked for")
    for name, value, kind in (("program", draft.program, Program), ("refusal", draft.refusal, Refusal)):
        if value is not None and not isinstance(value, kind):
            raise wrong_answer(designer, "design", value, f"a draft whose {name} is a {kind.__name__} or None")
    return draft


def check_hint(writer: Any, hint: Any) -> str | None:
    """A hint, or ``None``. Raises :class:`PluginError`."""
    if hint is not None and not isinstance(hint, str):
        raise wrong_answer(writer, "write", hint, "a text or None")
    return hint


def check_skills(curriculum: Any, skills: Any, slots: int) -> list[Skill]:
    """One skill for every slot. Raises :class:`PluginError`."""
    fits = isinstance(skills, Sequence) and len(skills) == slots and all(isinstance(skill, Skill) for skill in skills)
    if not fits:
        raise wrong_answer(curriculum, "skills", skills, f"a list of {slots} skills, one for every slot")
    return list(skills)


def check_samples(memory: Any, samples: Any) -> tuple[tuple[Any, ...], Any]:
    """Seeds, and a counter-example or ``None``. Raises :class:`PluginError`."""
    if not isinstance(samples, tuple) or len(samples) != 2 or not isinstance(samples[0], list | tuple):
        raise wrong_answer(memory, "sample", samples, "a pair of a tuple of entries and one entry or None")
    return tuple(samples[0]), samples[1]


def reward_of(reward: DesignerReward, item: RewardInput) -> float | None:
    """What a designer reward says of one environment: a finite number, or ``None``. Raises :class:`PluginError`."""
    value: Any = reward.reward(item)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise wrong_answer(reward, "reward", value, "a finite number or None")
    return float(value)


def check_metrics(learner: Any, metrics: Any) -> dict[str, float]:
    """Numbers by name. Raises :class:`PluginError`."""
    if not isinstance(metrics, Mapping):
        raise wrong_answer(learner, "step", metrics, "a mapping of metrics")
    for name, value in metrics.items():
        if not isinstance(name, str) or isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong_answer(learner, "step", {name: value}, "a number for every name")
    return dict(metrics)


def check_evaluation(evaluator: Any, result: Any) -> Mapping[str, Any]:
    """Results by name. Raises :class:`PluginError`."""
    if not isinstance(result, Mapping) or not all(isinstance(name, str) for name in result):
        raise wrong_answer(evaluator, "evaluate", result, "a mapping of results by name")
    return result


def check_completion(engine: Any, completion: Any) -> Completion:
    """A completion. Raises :class:`PluginError`."""
    if not isinstance(completion, Completion):
        raise wrong_answer(engine, "complete", completion, "a Completion")
    return completion
