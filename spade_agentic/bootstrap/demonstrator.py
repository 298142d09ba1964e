"""The demonstrator that ``spade-tiny`` imitates: sure in its mechanics, open in its decisions, obedient to a hint.

It knows the reference script of an instance, so formats, values and the order of arguments are always right. Where the
script marks a *decision*, it takes the right action only as often as :data:`RIGHT` says for that kind of decision, and
otherwise a plausible wrong one. In most kinds of decision one wrong action is likelier than the right one, so that taking
the likeliest action everywhere does not win either. With a hint it nearly always decides right. What is left to learn is
decisions, and a hint is worth following: hint-regret is positive exactly where there is something to learn.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from spade_agentic.envs.contract import ToolCall
from spade_agentic_sims.demonstrate import Demonstration, demonstrate as follow_script
from spade_agentic_sims.kit import Alternative, Chain, Step

__all__ = ["FAVOURITE", "HINTED_RIGHT", "RIGHT", "SECOND_THOUGHT", "Decided", "Options", "play"]

RIGHT: Mapping[str, float] = {
    # nearly sure: a wrong turn here is a slip
    "finish_or_more": 0.98,
    "look_up_first": 0.95,
    "pick_among_hits": 0.95,
    "account_kind": 0.95,
    "pick_by_field": 0.95,
    "right_field": 0.95,
    # open: the favourite wrong action is likelier than the right one
    "argument_role": 0.45,
    "branch": 0.45,
    "go_on": 0.45,
    "near_synonym": 0.45,
    "precondition": 0.45,
    "recover": 0.45,
}
"""How often the demonstrator decides right without a hint, by kind of decision."""

FAVOURITE = 0.95
"""The share of the first alternative among wrong decisions."""

SECOND_THOUGHT = 0.7
"""How often it decides right when it comes to the same decision again, because its first action settled nothing."""

HINTED_RIGHT = 1.0
"""How often it decides right where it has a hint."""

Options = tuple[tuple[ToolCall | str, float], ...]
"""The actions that the demonstrator considered and how likely it was to take each; one alone where it had no choice."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A demonstrated play, and for each of its exchanges what the demonstrator might have done instead."""

    shown: Demonstration
    options: list[Options]

    @property
    def won(self) -> bool:
        return self.shown.won


def play(chain: Chain, seed: int, rng: random.Random, *, hinted: bool = False, greedy: bool = False) -> Decided:
    """One demonstrated play of an instance; ``greedy`` takes the likeliest action at every decision."""
    faced: set[int] = set()
    weighed: list[list[float]] = []

    def choose(step: Step) -> Alternative | None:
        shares = _shares(step, again=id(step) in faced, hinted=hinted)
        if greedy:
            likeliest = shares.index(max(shares))
            shares = [float(index == likeliest) for index in range(len(shares))]
        faced.add(id(step))
        weighed.append(shares)
        return rng.choices((None, *step.alternatives), shares)[0]

    shown = follow_script(chain.env(), seed=seed, choose=choose)
    pending = iter(weighed)
    options = [_options(e.step, next(pending)) if e.step.alternatives else ((e.action, 1.0),) for e in shown.exchanges]
    return Decided(shown, options)


def _shares(step: Step, *, again: bool, hinted: bool) -> list[float]:
    """How likely the right action is, and each of the alternatives."""
    assert step.decision is not None, "a step with alternatives names its kind of decision"
    right = HINTED_RIGHT if hinted else max(RIGHT[step.decision], SECOND_THOUGHT if again else 0.0)
    others = len(step.alternatives) - 1
    favourite = FAVOURITE if others else 1.0
    return [right, (1 - right) * favourite, *[(1 - right) * (1 - favourite) / others for _ in range(others)]]


def _options(step: Step, shares: list[float]) -> Options:
    actions = (step.call, *(alternative.action for alternative in step.alternatives))
    return tuple((action, share) for action, share in zip(actions, shares, strict=True) if share > 0)
