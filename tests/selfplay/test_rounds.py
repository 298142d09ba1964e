"""One regeneration: drafts, gates, hints, and what is remembered of them."""

import asyncio

import pytest
from play_fakes import DoorDesigner, any_door, door_gates, game_policy, make_game

from spade_agentic.errors import ContextOverflow, EngineUnavailable
from spade_agentic.hooks.records import GateReport, Refusal, Skill
from spade_agentic.selfplay.state import RECENT_PROGRAMS, LoopState


def designs(design):
    return game_policy(design, lambda level: 0.5)


async def make_round(rendering, design, *, known=(), index=0, **options):
    game = make_game(rendering, designs(design), **options)
    return await game.loop.rounds.make(index, known), game


async def test_every_slot_gets_its_skill_and_its_environment(rendering):
    made, _ = await make_round(rendering, any_door, environments=4)
    assert made.skills == [list(Skill)[i] for i in (0, 1, 2, 0)]
    assert {slot: e.program.skill for slot, e in made.environments.items()} == dict(enumerate(made.skills))
    assert [e.env_id for e in made.environments.values()] == ["r0s0", "r0s1", "r0s2", "r0s3"]


async def test_a_slot_gets_up_to_its_attempts_and_then_stays_empty(rendering):
    def design(rng, request_id):
        return any_door(rng, request_id) if request_id.startswith(("r0s0a1", "r0s1a2")) else "no"

    made, _ = await make_round(rendering, design, attempts=2)
    assert list(made.environments) == [0]
    assert [d.draft_id for d in made.drafts] == ["r0s0a0", "r0s1a0", "r0s2a0", "r0s0a1", "r0s1a1", "r0s2a1"]
    assert {d.refusal.code for d in made.refused} == {"no_door"}


async def test_of_two_equal_drafts_the_first_slots_stays(rendering):
    made, _ = await make_round(rendering, lambda rng, name: "door 7", attempts=1)
    assert list(made.environments) == [0]
    assert [d.refusal.code for d in made.refused] == ["duplicate", "duplicate"]


async def test_a_known_program_is_a_duplicate(rendering):
    first, _ = await make_round(rendering, lambda rng, name: "door 7", attempts=1)
    known = [first.environments[0].program.canonical_hash]
    made, _ = await make_round(rendering, lambda rng, name: "door 7", attempts=1, known=known)
    assert made.environments == {}


async def test_a_refused_draft_is_remembered_too(rendering):
    made, game = await make_round(rendering, lambda rng, name: "no" if name.startswith("r0s1") else any_door(rng, name))
    rows = {row[0]: bool(row[5]) for row in game.loop.rounds.memory.state_dict()["entries"]}
    assert rows == {d.draft_id: d.refusal is None for d in made.drafts}


async def test_the_gates_reason_is_the_drafts_and_its_turn_limit_the_environments(rendering):
    async def gates(program, known):
        refusal = Refusal("solution", "loses", "seed 3") if program.origin["level"] % 2 else None
        return GateReport(refusal, max_turns=11)

    def design(rng, request_id):
        return "door 2" if request_id.startswith("r0s0") else "door 1"

    made, _ = await make_round(rendering, design, gates=gates, attempts=1)
    assert made.environments[0].max_turns == 11
    assert [d.refusal for d in made.refused] == [Refusal("solution", "loses", "seed 3")] * 2


async def test_seeds_of_the_memory_reach_the_designer(rendering):
    game = make_game(rendering, game_policy(any_door, lambda level: 0.5), steps=3, regenerate_every=1)
    game.loop.rounds.curriculum._skills = (Skill.DATA_RETRIEVAL,)
    game.loop.rounds.curriculum._active = 1
    await game.loop.run()
    prompts = [game.engine.tokenizer.decode(ids) for name, ids in game.engine.prompts.items() if name.startswith("r2s")]
    rows = {row[2] for row in game.loop.rounds.memory.state_dict()["entries"] if row[6] < 2 and 0.15 <= (row[3] or 0) <= 0.85}
    shown = [prompt.partition("Seeds: ")[2].partition("<|im_end|>")[0] for prompt in prompts]
    assert rows
    assert all(any(source in text for source in rows) for text in shown)


async def test_a_draft_that_overflows_the_context_is_refused_with_a_reason(rendering):
    class Greedy(DoorDesigner):
        async def design(self, request, policy):
            if request.slot == 0:
                raise ContextOverflow("too long")
            return await super().design(request, policy)

    made, _ = await make_round(rendering, any_door, designer=Greedy(), attempts=1)
    assert [(d.draft_id, d.refusal.code) for d in made.refused] == [("r0s0a0", "context_overflow")]


async def test_a_hint_that_cannot_be_written_leaves_the_environment_without_one(rendering):
    class Overflowing:
        async def write(self, program, policy, *, seed):
            raise ContextOverflow("too long")

    made, _ = await make_round(rendering, any_door, hint_writer=Overflowing())
    assert made.without_hint == 3


async def test_a_failure_of_the_engine_ends_the_round_and_is_no_refusal(rendering):
    class Broken(DoorDesigner):
        async def design(self, request, policy):
            raise EngineUnavailable("gone")

    with pytest.raises(EngineUnavailable):
        await make_round(rendering, any_door, designer=Broken())


async def test_gates_of_one_attempt_run_side_by_side(rendering):
    running, most = 0, 0

    async def gates(program, known):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return await door_gates(program, known)

    await make_round(rendering, any_door, gates=gates)
    assert most == 3


async def test_a_round_depends_on_its_seed_and_memory_alone(rendering):
    first, _ = await make_round(rendering, any_door)
    second, _ = await make_round(rendering, any_door, deterministic=False)
    assert first.drafts == second.drafts
    other, _ = await make_round(rendering, any_door, run_seed=1)
    assert [d.text for d in other.drafts] != [d.text for d in first.drafts]


def test_the_ring_of_recent_programs_forgets_the_oldest():
    state = LoopState()
    state.remember(str(i) for i in range(RECENT_PROGRAMS + 5))
    assert len(state.recent_programs) == RECENT_PROGRAMS
    assert state.recent_programs[0] == "5"
    again = LoopState()
    again.load_state_dict(state.state_dict())
    assert again == state
