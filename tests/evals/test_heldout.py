from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from spade_agentic.envs.contract import load_environment
from spade_agentic.errors import PluginError, SandboxError
from spade_agentic.evals import EvalInstance, EvalRunner, HeldOutEvaluator
from spade_agentic.evals.heldout import gain
from spade_agentic.hooks.kinds import Reserving
from spade_agentic.hooks.records import Arm, Play, Program, Role, Sampling, Skill, StopReason, Trajectory
from spade_agentic_plugins.blueprint import DEFAULT_DOMAINS, Blueprint, compile_blueprint
from spade_agentic_plugins.heldout import HeldOutOptions, evaluator, held_out_chains, held_out_instances
from spade_agentic_sims.kit import HELD_OUT_SEED, Mods, SimEnv, draw_chain, is_reserved

SMALL = HeldOutOptions(chains=8, instances=2, repeats=3)


class FakeRunner:
    """Wins with a chance per arm; remembers what it was asked for."""

    sampling = Sampling(temperature=0.8, max_tokens=33)

    def __init__(self, chance: dict[str, float], void: int = 0) -> None:
        self.chance, self.void = chance, void
        self.asked: list[tuple[str, int, Arm, Sampling]] = []

    async def play(
        self, instances: list[EvalInstance], repeats: int, arm: Arm, sampling: Sampling, *, purpose: str
    ) -> list[Play]:
        self.asked.append((purpose, repeats, arm, sampling))
        plays = []
        for program, seed in instances:
            for repeat in range(repeats):
                rng = random.Random(f"{purpose}|{program.program_id}|{seed}|{repeat}")
                won = rng.random() < self.chance[purpose.rpartition("-")[2]]
                stop = StopReason.ENVIRONMENT_FAULT if len(plays) < self.void else StopReason.ANSWERED
                plays.append(
                    Play(
                        f"{purpose}-{len(plays)}", program.program_id, seed, repeat, arm, Trajectory(Role.AGENT),
                        reward=float(won), won=won and stop is StopReason.ANSWERED, stop=stop, fault="crash",
                    )
                )
        return plays[::-1]


def toy_instances(count: int) -> list[EvalInstance]:
    return [(Program(f"# world {i % 4}", Skill.TOOL_SELECTION, origin={"domain": f"d{i % 2}"}), i) for i in range(count)]


def toy(count: int, repeats: int = 2, hinted_repeats: int = 1) -> HeldOutEvaluator:
    return HeldOutEvaluator(
        toy_instances(count), repeats=repeats, hinted_repeats=hinted_repeats, group_of=lambda p: str(p.origin["domain"])
    )


async def test_the_three_rates_come_from_their_own_plays_with_intervals_around_them() -> None:
    runner = FakeRunner({"sampled": 0.3, "greedy": 0.5, "hinted": 0.9})
    assert isinstance(runner, EvalRunner)
    result = await toy(200).evaluate(runner, step=0)
    for rate, truth in runner.chance.items():
        key = f"heldout/{rate}"
        assert result[f"{key}_low"] < result[key] < result[f"{key}_high"]
        assert result[key] == pytest.approx(truth, abs=0.1)
        parts = [result[f"{key}/d0"], result[f"{key}/d1"]]
        assert sum(parts) / 2 == pytest.approx(result[key])
    assert result["heldout/plays"] == 200 * 4
    assert result["heldout/void"] == 0


async def test_greedy_plays_have_temperature_zero_and_only_hinted_ones_the_hint() -> None:
    runner = FakeRunner({"sampled": 0.3, "greedy": 0.5, "hinted": 0.9})
    await toy(10, repeats=3, hinted_repeats=2).evaluate(runner, step=7)
    assert runner.asked == [
        ("heldout-sampled", 3, Arm.PLAIN, runner.sampling),
        ("heldout-greedy", 1, Arm.PLAIN, Sampling(temperature=0.0, max_tokens=33)),
        ("heldout-hinted", 2, Arm.HINTED, runner.sampling),
    ]


async def test_without_hinted_repeats_no_hint_is_asked_for() -> None:
    runner = FakeRunner({"sampled": 0.3, "greedy": 0.5})
    result = await toy(10, hinted_repeats=0).evaluate(runner, step=0)
    assert not any("hinted" in key for key in result)


async def test_void_plays_are_in_no_rate_and_are_counted() -> None:
    runner = FakeRunner({"sampled": 1.0, "greedy": 1.0, "hinted": 1.0}, void=5)
    result = await toy(20).evaluate(runner, step=0)
    assert result["heldout/sampled"] == 1.0
    assert (result["heldout/plays"], result["heldout/void"]) == (20 * 4 - 15, 15)


async def test_an_arm_of_void_plays_alone_is_an_error_of_ours() -> None:
    with pytest.raises(SandboxError, match="every one of 10 sampled plays"):
        await toy(5).evaluate(FakeRunner({"sampled": 1.0}, void=10**6), step=0)


async def test_gain_is_paired_and_tighter_than_two_separate_intervals() -> None:
    evaluation = toy(300, repeats=2)
    before = await evaluation.evaluate(FakeRunner({"sampled": 0.3, "greedy": 0.3, "hinted": 0.9}), step=0)
    after = await evaluation.evaluate(FakeRunner({"sampled": 0.6, "greedy": 0.6, "hinted": 0.9}), step=9)
    difference = gain(before["instances/sampled"], after["instances/sampled"])
    assert difference is not None
    assert difference.value == pytest.approx(after["heldout/sampled"] - before["heldout/sampled"])
    widths = sum(r["heldout/sampled_high"] - r["heldout/sampled_low"] for r in (before, after))
    assert difference.high - difference.low < widths
    same = gain(after["instances/hinted"], before["instances/hinted"])
    assert same is not None
    assert same.low == same.value == same.high == 0.0, "the same noise gives the same plays"
    assert gain({}, after["instances/sampled"]) is None


# --- the plugin ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", DEFAULT_DOMAINS)
def test_every_measured_chain_is_reserved_and_every_seed_is_above_training(domain: str) -> None:
    instances = held_out_instances([domain], HeldOutOptions())
    assert len(instances) == 32 * 4
    assert len({seed for _, seed in instances}) == len(instances)
    for program, seed in instances:
        assert seed >= HELD_OUT_SEED
        assert is_reserved(program.origin["domain"], program.origin["goals"])


def test_no_chain_comes_twice_before_every_reserved_chain_came_once() -> None:
    chains = held_out_chains("banking", HeldOutOptions(chains=12))
    assert len({c.goals for c in chains}) == 12
    assert len(set(held_out_chains("banking", HeldOutOptions(chains=60)))) == 60


def test_the_list_is_the_same_every_time_and_another_seed_gives_another() -> None:
    assert held_out_instances(["banking"], SMALL) == held_out_instances(["banking"], SMALL)
    other = HeldOutOptions(chains=8, instances=2, repeats=3, seed=1)
    assert held_out_instances(["banking"], SMALL) != held_out_instances(["banking"], other)


@pytest.mark.parametrize("domain", DEFAULT_DOMAINS)
def test_every_measured_instance_is_won_by_its_reference_solution(domain: str) -> None:
    for program, seed in held_out_instances([domain], SMALL):
        env = load_environment(program.source)
        assert isinstance(env, SimEnv)
        env.reset(seed=seed)
        for call in (call for instruction in env._instructions for call in instruction.solution):
            env.step(call.as_action())
        _, reward, terminated, _, _ = env.step({"type": "text", "text": "done"})
        assert (reward, terminated) == (1.0, True), program.source


def test_chains_that_cannot_be_reserved_are_an_error_that_says_so() -> None:
    with pytest.raises(PluginError, match="no chain of banking with 1 goals is reserved"):
        held_out_chains("banking", HeldOutOptions(lengths=(1,)))
    with pytest.raises(PluginError, match="different held-out worlds"):
        held_out_chains("banking", HeldOutOptions(chains=5000, hidden=0.0, faults=0.0))


def test_the_plugin_measures_the_domains_of_the_run() -> None:
    (factory,) = evaluator()
    config = SimpleNamespace(tool_sims=[SimpleNamespace(name="banking")])
    built = factory.build(SMALL, SimpleNamespace(config=config))
    assert {program.origin["domain"] for program, _ in built.instances} == {"banking"}
    assert {program.origin["hint"] for program, _ in built.instances} != {None}


def test_what_is_measured_and_every_reserved_chain_is_kept_from_training() -> None:
    instances = held_out_instances(["banking"], SMALL)
    (factory,) = evaluator()
    built = factory.build(HeldOutOptions(chains=1, domains=("banking",)), SimpleNamespace(config=None))
    assert isinstance(built, Reserving)
    assert all(built.reserved(program) for program, _ in instances), "also those that this one does not measure"
    bare = HeldOutEvaluator(instances, repeats=1, hinted_repeats=0)
    world = instances[0][0]
    disguised = replace(world, source=world.source + "# otherwise the same", origin={})
    assert "one that heldout measures" in str(bare.reserved(disguised))
    goals = draw_chain(random.Random(1), "banking", 2).goals
    free = compile_blueprint(Blueprint("banking", Skill.MULTI_STEP_WORKFLOWS, goals, Mods()))
    assert built.reserved(free) is None
