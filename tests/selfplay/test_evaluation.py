"""An evaluation plays through the run's own rollout path and leaves no trace in the run."""

import pytest
from play_fakes import CallingHints, NoWatch, any_door, door, game_policy, make_game

from spade_agentic.evals.protocol import EvalRunner
from spade_agentic.hooks.records import Arm, Program, Sampling, Skill
from spade_agentic.selfplay.evaluation import PROGRAMS_AT_ONCE, EvaluationRunner

POLICY = game_policy(any_door, lambda level: 0.5)
SAMPLING = Sampling(max_tokens=512)


def evaluation(game, step=0):
    return EvaluationRunner(game.loop.runner, game.loop.rounds, game.loop.pool, SAMPLING, step)


def instances(programs, seeds=(10**6, 10**6 + 1)):
    return [(program, seed) for program in programs for seed in seeds]


async def measure(game, arm=Arm.PLAIN, *, step=0, programs=None, repeats=2, sampling=SAMPLING, purpose="heldout"):
    programs = [door(i) for i in range(3)] if programs is None else programs
    return await evaluation(game, step).play(instances(programs), repeats, arm, sampling, purpose=purpose)


async def test_every_instance_is_played_as_often_as_was_asked(rendering):
    plays = await measure(make_game(rendering, POLICY))
    assert isinstance(evaluation(make_game(rendering, POLICY)), EvalRunner)
    wanted = {(door(i).program_id, seed, r) for i in range(3) for seed in (10**6, 10**6 + 1) for r in range(2)}
    assert {(p.env_id, p.seed, p.repeat) for p in plays} == wanted
    assert len(plays) == len({p.play_id for p in plays}) == 12
    assert all(p.play_id.startswith("heldout") for p in plays)


async def test_whoever_watches_sees_every_play_of_an_evaluation_begin_and_end(rendering):
    game = make_game(rendering, POLICY)
    runner = evaluation(game)
    runner.watch = NoWatch()
    plays = await runner.play(instances([door(0)]), 2, Arm.PLAIN, SAMPLING, purpose="heldout")
    assert sorted(runner.watch.started) == sorted(runner.watch.finished) == sorted(p.play_id for p in plays)
    assert set(runner.watch.stages) == set(runner.watch.started)
    assert game.watch.started == [], "the training's watch counts and is not told"


async def test_two_evaluations_of_the_same_weights_agree_whatever_the_step(rendering):
    game = make_game(rendering, POLICY)
    first, second = await measure(game), await measure(game, step=7)
    for play in (*first, *second):
        play.duration_s = 0.0
    assert first == second
    other = await measure(game, purpose="another")
    assert [p.won for p in other] != [p.won for p in first] or [p.trajectory for p in other] != [p.trajectory for p in first]


async def test_the_hinted_arm_gets_the_hint_of_the_runs_own_writer(rendering):
    game = make_game(rendering, POLICY, hint_writer=CallingHints())
    plays = await measure(game, Arm.HINTED)
    assert all(p.won for p in plays)
    assert any("hint" in name for name in game.engine.requests)


async def test_greedy_plays_are_asked_for_with_temperature_zero(rendering):
    game = make_game(rendering, POLICY)
    await measure(game, sampling=Sampling(temperature=0.0, max_tokens=512))
    assert {s.temperature for s in game.engine.samplings.values()} == {0.0}


async def test_nothing_of_an_evaluation_is_stored_or_stays_loaded(rendering):
    game = make_game(rendering, POLICY, steps=1)
    await game.loop.run()
    before, loaded = game.loop.state_dict(), list(game.sandbox.loaded)
    await measure(game, Arm.HINTED)
    assert game.loop.state_dict() == before
    assert sorted(game.sandbox.loaded) == sorted(loaded)
    assert len(game.watch.finished) == sum(game.watch.expected)
    assert not any(name.startswith("heldout") for name in game.watch.started)


async def test_many_programs_are_loaded_a_few_at_a_time(rendering):
    game = make_game(rendering, POLICY)
    plays = await measure(game, programs=[door(i) for i in range(PROGRAMS_AT_ONCE * 2 + 1)], repeats=1)
    assert len(plays) == 2 * (PROGRAMS_AT_ONCE * 2 + 1)
    assert game.sandbox.most_loaded == PROGRAMS_AT_ONCE


async def test_the_turn_limit_is_the_programs_own(rendering):
    stubborn = game_policy(any_door, lambda level: 0.5)

    def policy(prompt, rng, name):
        return '<tool_call>\n{"name": "unlock", "arguments": {"key": 0}}\n</tool_call>' if "heldout" in name else stubborn

    plays = await measure(make_game(rendering, policy), programs=[door(turns=3)], repeats=1)
    assert {len(p.turns) for p in plays} == {3}


async def test_a_program_that_does_not_load_is_among_the_plays_as_void(rendering):
    broken = Program("raise ValueError('no')", Skill.DATA_RETRIEVAL)
    plays = await measure(make_game(rendering, POLICY), programs=[broken, door(1)], repeats=1)
    assert [p.void for p in plays] == [True, True, False, False]


async def test_a_failure_of_ours_leaves_no_program_loaded(rendering):
    def policy(prompt, rng, name):
        raise RuntimeError("the engine broke")

    game = make_game(rendering, policy)
    with pytest.raises(RuntimeError, match="the engine broke"):
        await measure(game)
    assert game.sandbox.loaded == []
