"""The loop, played with toys: rounds, plays, rewards, batches, and a state that is all there is."""

import inspect

import pytest
from play_fakes import (
    CallingHints,
    InProcessSandbox,
    any_door,
    game_policy,
    make_game,
)

from spade_agentic.hooks.records import Arm, Role, StopReason
from spade_agentic.rollout.seeding import INSTANCE_SEEDS
from spade_agentic.selfplay import loop as loop_module
from spade_agentic.selfplay.batch import owner_of

MIDDLING = game_policy(any_door, lambda level: 0.5)


async def played(rendering, policy=MIDDLING, **options):
    game = make_game(rendering, policy, **options)
    await game.loop.run()
    return game


def all_plays(game):
    return [play for record, _ in game.commits for play in record.plays]


async def test_a_run_takes_every_step_and_commits_each_once(rendering):
    game = await played(rendering, steps=5)
    assert [record.step for record, _ in game.commits] == [1, 2, 3, 4, 5]
    assert game.engine.version == 5


async def test_the_pool_is_replaced_every_k_steps(rendering):
    game = await played(rendering, steps=5, regenerate_every=2)
    played_in = [{p.env_id for p in record.plays} for record, _ in game.commits]
    assert played_in[0] == played_in[1] == {"r0s0", "r0s1", "r0s2"}
    assert played_in[2] == played_in[3] == {"r1s0", "r1s1", "r1s2"}
    assert played_in[4] == {"r2s0", "r2s1", "r2s2"}


async def test_plays_are_seeds_times_repeats_in_each_arm(rendering):
    game = await played(rendering, steps=1, seeds=3, repeats=2)
    for env_id in ("r0s0", "r0s1", "r0s2"):
        for arm in Arm:
            mine = [(p.seed, p.repeat) for p in all_plays(game) if p.env_id == env_id and p.arm is arm]
            assert len(mine) == len(set(mine)) == 6
            assert len({seed for seed, _ in mine}) == 3


async def test_hinted_plays_are_made_in_the_first_step_of_a_round_only(rendering):
    game = await played(rendering, steps=4, regenerate_every=2)
    hinted = [sum(p.arm is Arm.HINTED for p in record.plays) for record, _ in game.commits]
    assert [count > 0 for count in hinted] == [True, False, True, False]


async def test_hinted_plays_are_made_in_every_step_where_the_config_says_so(rendering):
    game = await played(rendering, steps=3, hinted_every_step=True)
    assert all(sum(p.arm is Arm.HINTED for p in r.plays) == sum(p.arm is Arm.PLAIN for p in r.plays) for r, _ in game.commits)


async def test_training_never_draws_an_instance_of_evaluation(rendering):
    game = await played(rendering, steps=4)
    assert all(0 <= p.seed < INSTANCE_SEEDS for p in all_plays(game))


async def test_no_hinted_play_and_no_hint_writers_token_is_ever_trained(rendering):
    game = await played(rendering, hint_writer=CallingHints(), steps=6)
    trained = {owner_of(s) for batch in game.learner.batches for s in batch}
    hinted = {p.play_id for p in all_plays(game) if p.arm is Arm.HINTED}
    assert hinted
    assert not trained & hinted
    assert not any("hint" in name for name in trained)
    assert all(record.metrics["audit/hinted_tokens"] == 0 for record, _ in game.commits)


async def test_every_draft_of_every_round_is_trained_the_last_round_too(rendering):
    game = await played(rendering, steps=6, regenerate_every=2, delay=2)
    drafts = {d["draft"].draft_id for d in (*game.hook("program_admitted"), *game.hook("program_refused"))}
    rewarded = {owner_of(s) for batch in game.learner.batches for s in batch if s.role is Role.DESIGNER}
    assert rewarded == drafts
    assert len(game.loop.delay) == 0


@pytest.mark.parametrize("delay", [1, 2, 3, 5, 100])
async def test_a_delay_that_is_no_multiple_of_the_interval_trains_the_designer_all_the_same(rendering, delay):
    game = await played(rendering, steps=7, regenerate_every=3, delay=delay)
    trained = [owner_of(s) for batch in game.learner.batches for s in batch if s.role is Role.DESIGNER]
    assert sorted(trained) == sorted(set(trained)), "no draft twice"
    assert len(trained) >= 9, "three rounds of three"


async def test_designer_samples_wait_until_their_age_is_the_delay(rendering):
    game = await played(rendering, steps=6, regenerate_every=3, delay=3)
    counts = [sum(s.role is Role.DESIGNER for s in batch) for batch in game.learner.batches]
    assert counts == [0, 0, 0, 3, 0, 3], "round 0 in step 4, and the last round is flushed"


async def test_the_designers_reward_uses_every_play_of_its_interval(rendering):
    game = await played(rendering, steps=4, regenerate_every=2, hinted_every_step=True, seeds=2)
    regrets = game.commits[1][0].regrets
    assert set(regrets) == {"r0s0", "r0s1", "r0s2"}
    assert all(regret.pairs == 4 for regret in regrets.values()), "two seeds in each of two steps"
    [late] = [record for record, _ in game.commits if record.step == 3]
    rewards = {d.draft_id: d.reward for d in late.drafts if d.round_index == 0 and d.refusal is None}
    for env_id, regret in regrets.items():
        draft_id = next(a["environment"].draft_id for a in game.hook("program_admitted") if a["environment"].env_id == env_id)
        assert rewards[draft_id] == regret.mean


async def test_the_last_step_settles_a_round_that_is_cut_short(rendering):
    game = await played(rendering, steps=3, regenerate_every=2)
    assert set(game.commits[-1][0].regrets) == {"r1s0", "r1s1", "r1s2"}


async def test_memory_learns_what_every_environment_turned_out_to_be(rendering):
    game = await played(rendering, steps=2, regenerate_every=2)
    rows = game.loop.rounds.memory.state_dict()["entries"]
    assert {row[0] for row in rows} == {d["draft"].draft_id for d in game.hook("program_admitted")}
    assert all(row[3] is not None and row[4] is not None for row in rows)


async def test_the_pool_is_swapped_only_when_its_successor_is_ready(rendering):
    """While a round is being made, hints and all, the old pool stands whole."""
    pools = []

    class Looking(CallingHints):
        async def write(self, program, policy, *, seed):
            pools.append([e.env_id for e in game.loop.pool.environments])
            return await super().write(program, policy, seed=seed)

    game = make_game(rendering, MIDDLING, hint_writer=Looking(), steps=3, regenerate_every=2)
    await game.loop.run()
    assert pools == [[]] * 3 + [["r0s0", "r0s1", "r0s2"]] * 3


async def test_a_regeneration_that_fails_keeps_the_previous_round_in_play(rendering):
    def design(rng, request_id):
        return any_door(rng, request_id) if request_id.startswith("r0") else "nonsense"

    game = await played(rendering, game_policy(design, lambda level: 0.5), steps=4, regenerate_every=2)
    assert {p.env_id for p in game.commits[2][0].plays} == {"r0s0", "r0s1", "r0s2"}
    assert any(p.arm is Arm.HINTED for p in game.commits[2][0].plays), "a kept environment is compared again"
    assert game.commits[2][0].metrics["round/kept"] == 3
    assert len(game.hook("program_refused")) == 9, "three slots, three attempts"


async def test_a_run_whose_designer_never_writes_anything_useful_goes_on_and_learns_from_refusals(rendering):
    game = await played(rendering, game_policy(lambda rng, name: "nonsense", lambda level: 0.5), steps=3, regenerate_every=1)
    assert len(game.commits) == 3
    assert all_plays(game) == []
    sequences = [s for batch in game.learner.batches for s in batch]
    assert sequences
    assert all(s.role is Role.DESIGNER and s.advantage < 0 for s in sequences)


async def test_an_environment_fault_is_charged_to_the_designer_and_never_to_the_agent(rendering):
    """The reference charged the agent -1 and gave code that fails no negative signal at all."""

    def design(rng, request_id):
        return f"door {rng.randrange(10**6)}" + (" crash" if request_id.startswith("r0s0") else "")

    game = await played(rendering, game_policy(design, lambda level: 0.5), steps=2, regenerate_every=2)
    crashed = [p for p in all_plays(game) if p.env_id == "r0s0" and p.stop is StopReason.ENVIRONMENT_FAULT]
    assert crashed
    agent = {owner_of(s) for batch in game.learner.batches for s in batch if s.role is Role.AGENT}
    assert not agent & {p.play_id for p in crashed}
    [draft] = [s for batch in game.learner.batches for s in batch if s.sequence_id.startswith("r0s0")]
    assert draft.advantage < 0
    rewards = {d.draft_id: d.reward for d in game.commits[-1][0].drafts}
    assert rewards["r0s0a0"] == -0.5


async def test_an_environment_without_a_hint_has_no_regret_and_its_draft_no_reward(rendering):
    class Silent:
        async def write(self, program, policy, *, seed):
            return None

    game = await played(rendering, hint_writer=Silent(), steps=2, regenerate_every=2)
    assert game.commits[-1][0].regrets == {}
    assert all(p.arm is Arm.PLAIN for p in all_plays(game))
    assert all(s.role is Role.AGENT for batch in game.learner.batches for s in batch)


async def test_a_duplicate_of_an_earlier_program_is_refused(rendering):
    game = await played(rendering, game_policy(lambda rng, name: f"door {rng.randrange(4)}", lambda level: 0.5), steps=4,
                        regenerate_every=1)
    refusals = [arguments["draft"].refusal for arguments in game.hook("program_refused")]
    assert refusals
    assert {(r.gate, r.code) for r in refusals} == {("duplicate", "duplicate")}
    hashes = [a["environment"].program.canonical_hash for a in game.hook("program_admitted")]
    assert len(hashes) == len(set(hashes))


async def test_life_cycle_hooks_come_in_their_order(rendering):
    game = await played(rendering, steps=1)
    names = [name for name, _ in game.hooks]
    assert list(dict.fromkeys(names)) == ["round_opened", "program_admitted", "batch_ready", "step_committed"]
    assert len(game.watch.finished) == len(game.watch.started) == sum(game.watch.expected) == len(all_plays(game))
    assert len(game.watch.turns) == sum(len(p.turns) for p in all_plays(game))


async def test_programs_that_left_the_pool_are_closed(rendering):
    sandbox = InProcessSandbox()
    game = await played(rendering, steps=6, regenerate_every=2, sandbox=sandbox)
    assert sandbox.most_loaded <= 6
    await game.loop.runner.shelf.close()
    assert sandbox.loaded == []


# --- the state is all there is ---------------------------------------------------------------------------------------------


def comparable(record):
    for play in record.plays:
        play.duration_s = 0.0
    return record


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
async def test_a_run_that_is_continued_from_any_commit_does_what_the_uninterrupted_run_did(rendering, stop):
    """Averages, memory, delay buffer, pool with hints, histories in the middle of an interval: nothing is lost."""
    policy = game_policy(lambda rng, name: rng.choice([any_door(rng, name), "nonsense"]), lambda level: (level % 10) / 10)
    options = {"steps": 5, "regenerate_every": 3, "delay": 2, "hinted_every_step": True}
    whole = await played(rendering, policy, **options)
    rest = make_game(rendering, policy, **options)
    rest.loop.load_state_dict(whole.commits[stop - 1][1])
    rest.engine.version = stop
    await rest.loop.run()
    assert [record.step for record, _ in rest.commits] == list(range(stop + 1, 6))
    for (expected, state), (found, again) in zip(whole.commits[stop:], rest.commits, strict=True):
        assert comparable(found) == comparable(expected)
        assert again == state


async def test_latencies_do_not_change_a_deterministic_run(rendering):
    runs = [await played(rendering, steps=3, slots=5, delay_of=lambda name, k=k: hash((name, k)) % 7) for k in range(2)]
    assert runs[0].engine.waves == runs[1].engine.waves
    assert runs[0].learner.batches == runs[1].learner.batches


async def test_different_seeds_of_the_run_are_different_runs(rendering):
    first, second = [await played(rendering, steps=1, run_seed=seed) for seed in (0, 1)]
    assert {p.seed for p in all_plays(first)} != {p.seed for p in all_plays(second)}


async def test_an_asynchronous_schedule_keeps_the_plays_of_a_lockstep_run(rendering):
    """Without lockstep only the waves go; what is played and how it ends is keyed by names."""
    first = await played(rendering, steps=2)
    second = await played(rendering, steps=2, deterministic=False)
    assert second.engine.waves == {}
    assert [comparable(r).plays for r, _ in first.commits] == [comparable(r).plays for r, _ in second.commits]


def test_the_loop_reads_like_the_algorithm():
    lines = inspect.getsource(loop_module).splitlines()
    assert len(lines) <= 230
