"""Contract rules of the parts that design, remember and judge: designers, hints, rewards, memories, curricula, evaluators."""

from __future__ import annotations

import json
import math
from typing import Any

from spade_agentic.hooks.kinds import Observer, Stateful
from spade_agentic.hooks.records import Draft, FinishReason, Skill, StopReason

from .policy import Answer, Scripted, ScriptedPolicy
from .rules import Rule, Subject, is_json, require
from .runner import ScriptedRunner
from .samples import (
    COUNTER_SOURCE,
    sample_entry,
    sample_history,
    sample_play,
    sample_program,
    sample_request,
    sample_reward_input,
    sample_text_program,
)

__all__ = ["CURRICULUM", "DESIGNER", "EVALUATOR", "HINT_WRITER", "MEMORY", "REWARD"]

FIRST_HELD_OUT_SEED = 10**6
"""Training draws its instances below this seed."""

SAYINGS: tuple[Answer, ...] = (
    "", "hello", "```python\n", "```\nnot a program\n```", "{}", "domain: nowhere\nskill: none\ngoals: x", "\x00\ufffd</think>",
    "import os\nwhile True: pass", f"```python\n{COUNTER_SOURCE}```", "x" * 20_000,
    Scripted(COUNTER_SOURCE[:300], FinishReason.LENGTH), Scripted("", FinishReason.ABORT),
)  # fmt: skip
"""What a policy may say at any time."""
MOST_TURNS = 64
"""Whoever asks more often than this for one draft or hint does not end."""


# --- designers -------------------------------------------------------------------------------------------------------


async def _design(subject: Subject, answer: Answer, **changes: Any) -> tuple[Draft, ScriptedPolicy]:
    policy = ScriptedPolicy([answer] * MOST_TURNS)
    return await subject.make().design(sample_request(**changes), policy), policy


async def designer_never_raises(subject: Subject) -> None:
    """Whatever the policy says, a draft comes back: with a program or with a refusal, never with both or neither."""
    for answer in SAYINGS:
        draft, _ = await _design(subject, answer)
        require(isinstance(draft, Draft), f"for {answer!r:.60} it returned {type(draft).__name__}")
        both = (draft.program is not None) == (draft.refusal is not None)
        require(not both, f"for {answer!r:.60} it has program {draft.program!r:.40} and refusal {draft.refusal!r:.80}")


async def designer_keeps_request(subject: Subject) -> None:
    """A draft carries its request's id, skill, round, slot and attempt."""
    request = sample_request(skill=Skill.ERROR_RECOVERY)
    draft, _ = await _design(subject, "hello", skill=Skill.ERROR_RECOVERY)
    for name in ("draft_id", "skill", "round_index", "slot", "attempt"):
        expected, found = getattr(request, name), getattr(draft, name)
        require(found == expected, f"{name} is {found!r}, asked for was {expected!r}")


async def designer_hands_over_tokens(subject: Subject) -> None:
    """A draft that the policy was asked for has the policy's trajectory: without it nothing is trained."""
    draft, policy = await _design(subject, "hello")
    if policy.conversation:
        require(draft.trajectory is policy.trajectory, f"the draft's trajectory is {draft.trajectory!r:.80}")


async def designer_is_repeatable(subject: Subject) -> None:
    """The same request and the same answers give the same prompts and the same draft."""
    for answer in SAYINGS:
        (first, asked), (second, asked_again) = await _design(subject, answer), await _design(subject, answer)
        require(asked.conversation == asked_again.conversation, "the second time it asked something else")
        require((first.text, first.program) == (second.text, second.program), f"for {answer!r:.60} the drafts differ")


async def designer_trains_what_was_asked(subject: Subject) -> None:
    """A program that it makes is for the skill that was asked for."""
    for skill in Skill:
        for answer in SAYINGS:
            draft, _ = await _design(subject, answer, skill=skill)
            if draft.program is not None:
                require(draft.program.skill is skill, f"asked for {skill.value}, made {draft.program.skill.value}")


DESIGNER: tuple[Rule, ...] = (
    designer_never_raises, designer_keeps_request, designer_hands_over_tokens, designer_is_repeatable,
    designer_trains_what_was_asked,
)  # fmt: skip


# --- hint writers ----------------------------------------------------------------------------------------------------


async def hint_is_text_or_none(subject: Subject) -> None:
    """For every kind of program, and whatever the policy says, the hint is a text or None."""
    programs = (sample_program(), sample_program(origin={}), sample_text_program())
    for program in programs:
        for answer in SAYINGS:
            hint = await subject.make().write(program, ScriptedPolicy([answer] * MOST_TURNS), seed=3)
            require(hint is None or isinstance(hint, str), f"it is {type(hint).__name__}")


async def hint_is_repeatable(subject: Subject) -> None:
    """The same program, seed and answers give the same hint."""
    for answer in SAYINGS:
        policies = [ScriptedPolicy([answer] * MOST_TURNS) for _ in range(2)]
        hints = [await subject.make().write(sample_program(), policy, seed=3) for policy in policies]
        require(hints[0] == hints[1], f"first {hints[0]!r:.80}, then {hints[1]!r:.80}")


HINT_WRITER: tuple[Rule, ...] = (hint_is_text_or_none, hint_is_repeatable)


# --- rewards ---------------------------------------------------------------------------------------------------------


def _histories() -> dict[str, Any]:
    void = tuple(sample_play(0.0, seed=s, stop=StopReason.ENVIRONMENT_FAULT, fault="crash: x") for s in range(4))
    return {
        "an ordinary environment": sample_history(),
        "one that is always won": sample_history((1.0,) * 4, (1.0,) * 4),
        "one that is never won": sample_history((0.0,) * 4, (0.0,) * 4),
        "one whose hint hurts": sample_history((1.0,) * 4, (0.0,) * 4),
        "one without regret": sample_history(hinted=()),
        "one whose every play is void": sample_history(plays=void, regret=None, faults=4),
        "one that was never played": sample_history((), ()),
    }


async def reward_is_finite_or_none(subject: Subject) -> None:
    """For every history, whole or poor, the reward is a finite number or None."""
    rewards = subject.make()
    for name, history in _histories().items():
        value = rewards.reward(sample_reward_input(history))
        fine = value is None or (isinstance(value, int | float) and math.isfinite(value))
        require(fine, f"for {name} it is {value!r}")


async def reward_is_repeatable(subject: Subject) -> None:
    """Asking twice changes nothing: what is learned is learned in observe."""
    rewards = subject.make()
    item = sample_reward_input()
    first, second = rewards.reward(item), rewards.reward(item)
    require(first == second, f"first {first!r}, then {second!r}")


async def reward_does_not_pay_for_faults(subject: Subject) -> None:
    """A program that was at fault earns no more than the same history without the fault."""
    rewards = subject.make()
    faulty = rewards.reward(sample_reward_input(sample_history(faults=3)))
    sound = rewards.reward(sample_reward_input(sample_history()))
    require(faulty is None or sound is None or faulty <= sound, f"with faults {faulty!r}, without {sound!r}")


def require_stateful(rewards: Any) -> Any:
    """``rewards`` itself, where it has a state."""
    require(isinstance(rewards, Stateful), "it has observe, but not state_dict and load_state_dict")
    return rewards


async def reward_keeps_its_averages(subject: Subject) -> None:
    """A reward that observes has a state, and its state is all that its rewards depend on."""
    rewards: Any = subject.make()
    if not isinstance(rewards, Observer):
        return
    rewards = require_stateful(rewards)
    items = [sample_reward_input(history) for history in _histories().values()]
    rewards.observe(items)
    rewards.observe(items[:1])
    state = rewards.state_dict()
    require(is_json(state), f"its state does not come back equal from JSON: {state!r:.120}")
    restored = subject.make()
    restored.load_state_dict(json.loads(json.dumps(state)))
    before, after = [rewards.reward(item) for item in items], [restored.reward(item) for item in items]
    require(before == after, f"before {before}, restored {after}")


REWARD: tuple[Rule, ...] = (
    reward_is_finite_or_none, reward_is_repeatable, reward_does_not_pay_for_faults, reward_keeps_its_averages,
)  # fmt: skip


# --- memories --------------------------------------------------------------------------------------------------------


def _filled(subject: Subject) -> Any:
    memory = subject.make()
    for index in range(24):
        skill = list(Skill)[index % 2]
        rates = {"win_rate": (index % 11) / 10, "regret": index / 24}
        memory.add(sample_entry(draft_id=f"d{index}", skill=skill, round_index=index, **rates))
    return memory


async def memory_counts(subject: Subject) -> None:
    """It begins empty, grows with what is added (or, with a capacity of 0, never), and an id added again is no second entry."""
    memory = subject.make()
    require(len(memory) == 0, f"it begins with {len(memory)} entries")
    memory.add(sample_entry())
    memory.add(sample_entry(win_rate=0.1))
    require(len(memory) == _of_one(memory), f"one id added twice makes {len(memory)} entries")
    if not _of_one(memory):
        filled = len(_filled(subject))
        require(filled == 0, f"its capacity is 0, but after 24 drafts it has {filled} entries")


def _of_one(memory: Any) -> int:
    """Entries after one was added: 0 where the memory declares that it remembers nothing."""
    return 0 if getattr(memory, "capacity", None) == 0 else 1


async def memory_samples_its_own(subject: Subject) -> None:
    """What it samples are entries that were added, of the skill that was asked for; an empty memory has none."""
    seeds, counter = subject.make().sample(Skill.DATA_RETRIEVAL, seed=1)
    require(not seeds and counter is None, "an empty memory remembers something")
    memory = _filled(subject)
    for skill in list(Skill)[:3]:
        seeds, counter = memory.sample(skill, seed=5)
        entries = [*seeds, *([] if counter is None else [counter])]
        wrong = [e.draft_id for e in entries if e.skill is not skill or e.draft_id not in {f"d{i}" for i in range(24)}]
        require(not wrong, f"for {skill.value} it gave {wrong}")


async def memory_is_repeatable(subject: Subject) -> None:
    """The same seed samples the same entries, and sampling changes nothing."""
    memory = _filled(subject)
    skill = next(iter(Skill))
    first, second = memory.sample(skill, seed=5), memory.sample(skill, seed=5)
    require(first == second, f"first {first!r:.120}, then {second!r:.120}")


async def memory_updates(subject: Subject) -> None:
    """An update changes what is sampled of that entry; an update of what has been forgotten is no error."""
    memory = subject.make()
    memory.add(sample_entry(win_rate=None, regret=None))
    memory.update("d-unknown", win_rate=0.5, regret=0.1)
    memory.update("r0-s0-a0", win_rate=0.5, regret=0.25)
    require(len(memory) == _of_one(memory), f"after an update it has {len(memory)} entries")
    for seed in range(20):
        seeds, counter = memory.sample(Skill.STATE_MODIFICATION, seed=seed)
        for entry in [*seeds, *([] if counter is None else [counter])]:
            require((entry.win_rate, entry.regret) == (0.5, 0.25), f"it gave {entry!r:.160}")


async def memory_state(subject: Subject) -> None:
    """A memory that is restored from its state (as JSON) samples what the first one samples."""
    memory = _filled(subject)
    state = memory.state_dict()
    require(is_json(state), "its state does not come back equal from JSON")
    restored = subject.make()
    restored.add(sample_entry(draft_id="only-in-the-second"))
    restored.load_state_dict(json.loads(json.dumps(state)))
    require(len(restored) == len(memory), f"{len(memory)} entries became {len(restored)}")
    for skill in list(Skill)[:2]:
        require(restored.sample(skill, seed=9) == memory.sample(skill, seed=9), f"for {skill.value} the samples differ")


MEMORY: tuple[Rule, ...] = (memory_counts, memory_samples_its_own, memory_is_repeatable, memory_updates, memory_state)


# --- curricula -------------------------------------------------------------------------------------------------------


async def curriculum_fills_every_slot(subject: Subject) -> None:
    """A round of n slots gets n skills, for every n and every round."""
    curriculum = subject.make()
    for round_index in range(8):
        for slots in (1, 2, 7, 12):
            skills = curriculum.skills(round_index, slots)
            fine = isinstance(skills, list) and len(skills) == slots and all(isinstance(s, Skill) for s in skills)
            require(fine, f"round {round_index}, {slots} slots: {skills!r:.120}")


async def curriculum_is_repeatable(subject: Subject) -> None:
    """Asking twice for a round gives the same skills: what is learned is learned in observe."""
    curriculum = subject.make()
    first, second = curriculum.skills(3, 12), curriculum.skills(3, 12)
    require(first == second, f"first {first}, then {second}")


async def curriculum_state(subject: Subject) -> None:
    """A curriculum that is restored from its state (as JSON) chooses what the first one chooses."""
    curriculum, histories = subject.make(), list(_histories().values())
    for round_index in range(3):
        curriculum.skills(round_index, 12)
        curriculum.observe(histories)
    state = curriculum.state_dict()
    require(is_json(state), "its state does not come back equal from JSON")
    restored = subject.make()
    restored.load_state_dict(json.loads(json.dumps(state)))
    for round_index in range(3, 9):
        ours, theirs = curriculum.skills(round_index, 12), restored.skills(round_index, 12)
        require(ours == theirs, f"round {round_index}: {ours} became {theirs}")
        curriculum.observe(histories)
        restored.observe(histories)


CURRICULUM: tuple[Rule, ...] = (curriculum_fills_every_slot, curriculum_is_repeatable, curriculum_state)


# --- evaluators ------------------------------------------------------------------------------------------------------


async def evaluator_answers_with_metrics(subject: Subject) -> None:
    """It answers with named numbers (and data beside them) that JSON can hold."""
    result = await subject.make().evaluate(ScriptedRunner(), step=0)
    require(isinstance(result, dict), f"it returned {type(result).__name__}")
    require(all(isinstance(key, str) for key in result), "a name is no text")
    require(is_json(result), "its answer does not come back equal from JSON")
    require(any(isinstance(value, int | float) for value in result.values()), "there is no number in it")


async def evaluator_is_held_out(subject: Subject) -> None:
    """It plays only instances that training never draws: seeds from 1,000,000 on."""
    runner = ScriptedRunner()
    await subject.make().evaluate(runner, step=0)
    require(bool(runner.requests), "it plays nothing")
    low = [seed for request in runner.requests for _, seed in request.instances if seed < FIRST_HELD_OUT_SEED]
    require(not low, f"it plays training seeds: {low[:5]}")


async def evaluator_is_repeatable(subject: Subject) -> None:
    """Two evaluations of the same policy agree, whatever the step: before and after are compared on the same instances."""
    runners = [ScriptedRunner(), ScriptedRunner()]
    answers = [await subject.make().evaluate(runner, step=step) for runner, step in zip(runners, (0, 8), strict=True)]
    require(runners[0].requests == runners[1].requests, "it asked for other plays the second time")
    require(answers[0] == answers[1], "the answers differ")


async def evaluator_tells_good_from_bad(subject: Subject) -> None:
    """A policy that always wins and one that never does get different answers."""
    answers = []
    for runner in (ScriptedRunner(lambda *play: 0.0), ScriptedRunner(lambda *play: 1.0)):
        answers.append(await subject.make().evaluate(runner, step=0))
    require(answers[0] != answers[1], "both get the same")


async def evaluator_survives_faults(subject: Subject) -> None:
    """Plays that an environment's fault made void count neither as won nor as lost."""

    def some_void(program: Any, seed: int, repeat: int, arm: Any) -> float | None:
        return None if seed % 3 == 0 else 1.0

    voided = await subject.make().evaluate(ScriptedRunner(some_void), step=0)
    won = await subject.make().evaluate(ScriptedRunner(lambda program, seed, repeat, arm: 1.0), step=0)
    # Counts and interval bounds may differ, a rate must not: every play that counts was won.
    rates = [key for key, value in won.items() if value == 1.0 and not key.endswith("_low")]
    lost = [key for key in rates if voided.get(key) not in (1.0, None)]
    require(not lost, f"with every counted play won, these are not 1: {lost}")


EVALUATOR: tuple[Rule, ...] = (
    evaluator_answers_with_metrics, evaluator_is_held_out, evaluator_is_repeatable, evaluator_tells_good_from_bad,
    evaluator_survives_faults,
)  # fmt: skip

