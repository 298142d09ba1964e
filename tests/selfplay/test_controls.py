"""The controls of the ablations: what each of them takes away, and that it takes away nothing else."""

import pytest
from play_fakes import DoorDesigner, any_door, game_policy, make_game

from spade_agentic.hooks.records import Arm, Role, Skill
from spade_agentic.selfplay.batch import BatchMaker, owner_of
from spade_agentic.selfplay.loop import SelfPlay
from spade_agentic_plugins.no_memory import NoMemory
from spade_agentic_plugins.procedure_hints import NullHints
from spade_agentic_plugins.round_robin import RoundRobin, RoundRobinOptions
from spade_agentic_plugins.sqlite_memory import MemoryOptions, SqliteMemory

MIDDLING = game_policy(any_door, lambda level: 0.5)


async def played(rendering, policy=MIDDLING, **options):
    game = make_game(rendering, policy, **options)
    await game.loop.run()
    return game


def trained_drafts(game):
    return [owner_of(s) for batch in game.learner.batches for s in batch if s.role is Role.DESIGNER]


def plays_by_arm(game):
    plays = [play for record, _ in game.commits for play in record.plays]
    return {arm: sum(play.arm is arm for play in plays) for arm in Arm}


# --- a fixed pool --------------------------------------------------------------------------------------------------------


async def test_the_pool_never_changes_after_its_last_round(rendering):
    game = await played(rendering, steps=6, regenerate_every=2, most_rounds=1)
    assert [{p.env_id for p in record.plays} for record, _ in game.commits] == [{"r0s0", "r0s1", "r0s2"}] * 6
    assert len(game.hook("round_opened")) == 1
    assert {d["draft"].round_index for d in game.hook("program_admitted")} == {0}


async def test_rounds_are_counted_over_the_whole_run(rendering):
    game = await played(rendering, steps=8, regenerate_every=2, most_rounds=2)
    assert [min(p.env_id for p in record.plays) for record, _ in game.commits] == ["r0s0"] * 2 + ["r1s0"] * 6


async def test_a_pool_that_stays_costs_as_many_plays_as_one_that_is_regenerated(rendering):
    counts = [plays_by_arm(await played(rendering, steps=6, regenerate_every=2, most_rounds=n)) for n in (None, 1)]
    assert counts[0] == counts[1]
    assert counts[0][Arm.HINTED] > 0


async def test_a_pool_that_stays_has_a_new_regret_in_every_interval(rendering):
    game = await played(rendering, steps=6, regenerate_every=2, most_rounds=1, seeds=3)
    regrets = [record.regrets for record, _ in game.commits if record.regrets]
    assert [set(r) for r in regrets] == [{"r0s0", "r0s1", "r0s2"}] * 3
    assert all(regret.pairs == 3 for r in regrets for regret in r.values()), "the pairs of one interval, not of the whole run"


async def test_a_run_with_a_fixed_pool_continues_from_any_commit(rendering):
    options = {"steps": 5, "regenerate_every": 2, "most_rounds": 1, "train_designer": False}
    whole = await played(rendering, **options)
    rest = make_game(rendering, MIDDLING, **options)
    rest.loop.load_state_dict(whole.commits[2][1])
    rest.engine.version = 3
    await rest.loop.run()
    assert [state for _, state in rest.commits] == [state for _, state in whole.commits[3:]]


# --- a frozen designer ---------------------------------------------------------------------------------------------------


async def test_a_frozen_designers_drafts_never_enter_the_batch(rendering):
    policy = game_policy(lambda rng, name: rng.choice([any_door(rng, name), "nonsense"]), lambda level: 0.5)
    game = await played(rendering, policy, steps=6, regenerate_every=2, train_designer=False)
    assert trained_drafts(game) == []
    assert any(batch for batch in game.learner.batches), "the agent is trained all the same"
    assert all(record.metrics["audit/breaches"] == 0 for record, _ in game.commits)
    assert trained_drafts(await played(rendering, policy, steps=6, regenerate_every=2)) != []


async def test_a_frozen_designer_regenerates_and_is_rewarded_for_the_record(rendering):
    game = await played(rendering, steps=6, regenerate_every=2, train_designer=False)
    assert len(game.hook("round_opened")) == 3
    rewards = {d.draft_id: d.reward for record, _ in game.commits for d in record.drafts if d.refusal is None}
    assert len(rewards) == 9
    assert all(reward is not None for reward in rewards.values())
    assert len(game.loop.delay) == 0


async def test_a_draft_that_gets_into_a_frozen_designers_batch_all_the_same_is_a_breach(rendering, monkeypatch):
    due, find, make = [], SelfPlay.drafts_due, BatchMaker.make
    monkeypatch.setattr(SelfPlay, "drafts_due", lambda self, t, *, flush: due.extend(find(self, t, flush=flush)) or list(due))
    monkeypatch.setattr(BatchMaker, "make", lambda self, plays, waiting: make(self, plays, due))
    game = await played(rendering, steps=3, regenerate_every=2, train_designer=False)
    assert game.commits[-1][0].metrics["audit/hinted_tokens"] > 0


@pytest.mark.parametrize("train_designer", [True, False])
async def test_a_frozen_designer_costs_as_many_plays(rendering, train_designer):
    game = await played(rendering, steps=4, regenerate_every=2, train_designer=train_designer)
    assert plays_by_arm(game) == {Arm.PLAIN: 48, Arm.HINTED: 24}


# --- no memory -----------------------------------------------------------------------------------------------------------


class AskedDoors(DoorDesigner):
    """Keeps what it was asked."""

    def __init__(self):
        self.requests = []

    async def design(self, request, policy):
        self.requests.append(request)
        return await super().design(request, policy)


@pytest.mark.parametrize(("memory", "shown"), [(NoMemory, False), (lambda: SqliteMemory(MemoryOptions()), True)])
async def test_without_a_memory_no_request_shows_an_earlier_environment(rendering, memory, shown):
    # Two skills with a turn in every round: else no round asks for what an earlier one made.
    skills = RoundRobin(RoundRobinOptions(skills=(Skill.DATA_RETRIEVAL, Skill.STATE_MODIFICATION), active=2))
    designer = AskedDoors()
    game = await played(rendering, steps=6, regenerate_every=2, designer=designer, memory=memory(), curriculum=skills)
    assert {request.round_index for request in designer.requests} == {0, 1, 2}
    assert any(request.seeds or request.counter_example for request in designer.requests) is shown
    assert plays_by_arm(game)[Arm.HINTED] > 0


async def test_a_run_without_a_memory_continues_from_any_commit(rendering):
    whole = await played(rendering, steps=5, memory=NoMemory())
    rest = make_game(rendering, MIDDLING, steps=5, memory=NoMemory())
    rest.loop.load_state_dict(whole.commits[2][1])
    rest.engine.version = 3
    await rest.loop.run()
    assert [state for _, state in rest.commits] == [state for _, state in whole.commits[3:]]


# --- no hint -------------------------------------------------------------------------------------------------------------


async def test_with_an_empty_hint_the_hinted_arm_is_played_as_often_and_regret_is_zero(rendering):
    hinted, empty = await played(rendering), await played(rendering, hint_writer=NullHints())
    assert plays_by_arm(empty) == plays_by_arm(hinted)
    means = [[r.mean for record, _ in game.commits for r in record.regrets.values()] for game in (hinted, empty)]
    assert any(means[0])
    assert means[1] == [0.0] * len(means[0]), "the same prompt on the same noise"


async def test_with_an_empty_hint_no_draft_has_a_signal(rendering):
    """Admitted drafts earn alike, and refused ones weigh no more than they do."""
    policy = game_policy(lambda rng, name: rng.choice([any_door(rng, name), "nonsense"]), lambda level: 0.5)
    signals = []
    for hints in (None, NullHints()):
        game = await played(rendering, policy, hint_writer=hints)
        drafts = [s for batch in game.learner.batches for s in batch if s.role is Role.DESIGNER]
        assert drafts
        signals.append({s.advantage * s.weight for s in drafts})
    assert any(signals[0])
    assert signals[1] == {0.0}
