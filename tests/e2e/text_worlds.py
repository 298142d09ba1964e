"""Worlds that a model of random weights can play: how much a text is worth depends on its letters.

A third party's plugin for the tests of whole runs: with a random model every play earns something else, drafts earn different
regrets, some drafts are refused, and so both roles move the weights in every step.
"""

from __future__ import annotations

import random
from typing import Any

from spade_agentic import Arm, Draft, Factory, Program, ProgramKind, Refusal, Skill, hookimpl

SOURCE = '''
from spade_agentic.envs.contract import TextEnv


class Letters(TextEnv):
    """The word wins; any other text is worth something by its letters."""

    system = "Say the word."
    max_turns = 2

    def reset(self, *, seed):
        self.word, self.said = f"w{{seed % 9973}}", 0
        return f"World {number}. The word is {{self.word}}.", {{}}

    def step(self, text):
        self.said += 1
        if text == self.word:
            return "yes", 1.0, True, False, {{}}
        worth = sum(map(ord, text)) % 17 / 20
        return "no, again", worth, self.said == 2 or len(text) % 2 == 1, False, {{}}

    def solution(self):
        return [self.word]
'''


def world(number: int, skill: Skill = Skill.DATA_RETRIEVAL) -> Program:
    return Program(
        SOURCE.format(number=number), skill, kind=ProgramKind.TEXT, origin={"number": number, "hint": f"Say it {number} times."}
    )


class LetterDesigner:
    """Takes its number from the request's seed and the policy's own words; every third slot's first attempt is refused."""

    async def design(self, request: Any, policy: Any) -> Draft:
        text, completion = await policy.say([{"role": "user", "content": f"Design for {request.skill.value}."}])
        draft = Draft(
            request.draft_id, request.skill, request.round_index, request.slot, request.attempt,
            trajectory=policy.trajectory, text=text,
        )
        if request.slot % 3 == 1 and request.attempt == 0:
            draft.refusal = Refusal("letters", "third_slot")
        else:
            draft.program = world(random.Random(request.seed + sum(completion.token_ids)).randrange(10**9), request.skill)
        return draft


class LetterHints:
    async def write(self, program: Program, policy: Any, *, seed: int) -> str | None:
        text, _ = await policy.say([{"role": "user", "content": f"Hint for {program.origin['number']}."}])
        return f"{program.origin['hint']} {text}"


class LetterEvaluator:
    async def evaluate(self, runner: Any, *, step: int) -> dict[str, Any]:
        instances = [(world(-1 - i), 10**6 + i) for i in range(3)]
        plays = await runner.play(instances, 2, Arm.PLAIN, runner.sampling, purpose="letters")
        return {"letters/sampled": sum(p.reward for p in plays) / len(plays)}


@hookimpl
def env_designer() -> list[Factory[Any]]:
    return [Factory("letters", lambda options, context: LetterDesigner())]


@hookimpl
def hint_writer() -> list[Factory[Any]]:
    return [Factory("letters", lambda options, context: LetterHints())]


@hookimpl
def evaluator() -> list[Factory[Any]]:
    return [Factory("letters", lambda options, context: LetterEvaluator())]
