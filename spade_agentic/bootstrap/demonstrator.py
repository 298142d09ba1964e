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

from spade_agentic_sims.demonstrate import Demonstration, demonstrate as follow_script
from spade_agentic_sims.kit import Alternative, Chain, Step

__all__ = ["FAVOURITE", "HINTED_RIGHT", "RIGHT", "SECOND_THOUGHT", "play"]

RIGHT: Mapping[str, float] = {
    # nearly sure: a wrong turn here is a slip
    "finish_or_more": 0.96,
    "look_up_first": 0.90,
    "pick_among_hits": 0.88,
    "right_field": 0.85,
    "read_value": 0.85,
    "pick_by_field": 0.55,
    # open: the favourite wrong action is likelier than the right one
    "account_kind": 0.45,
    "argument_role": 0.45,
    "branch": 0.45,
    "near_synonym": 0.45,
    "precondition": 0.45,
    "recover": 0.45,
}
"""How often the demonstrator decides right without a hint, by kind of decision."""

FAVOURITE = 0.85
"""The share of the first alternative among wrong decisions."""

SECOND_THOUGHT = 0.7
"""How often it decides right when it comes to the same decision again, because its first action settled nothing."""

HINTED_RIGHT = 0.97
"""How often it decides right where it has a hint."""


def play(chain: Chain, seed: int, rng: random.Random, *, hinted: bool = False, greedy: bool = False) -> Demonstration:
    """One demonstrated play of an instance; ``greedy`` takes the likeliest action at every decision."""
    faced: set[int] = set()

    def choose(step: Step) -> Alternative | None:
        assert step.decision is not None
        right = RIGHT[step.decision]
        if id(step) in faced:
            right = max(right, SECOND_THOUGHT)
        if hinted:
            right = HINTED_RIGHT
        faced.add(id(step))
        favourite = FAVOURITE if len(step.alternatives) > 1 else 1.0
        if greedy:
            return None if right >= (1 - right) * favourite else step.alternatives[0]
        if rng.random() < right:
            return None
        return step.alternatives[0] if rng.random() < favourite else rng.choice(step.alternatives[1:])

    return follow_script(chain.env(), seed=seed, choose=choose)
