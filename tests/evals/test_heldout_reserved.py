"""Domains that are reserved as a whole: measured by the held-out protocol, and in no rate but their own."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spade_agentic import Skill, UserError
from spade_agentic.config.load import load_config, resolve_model
from spade_agentic.envs.contract import load_environment
from spade_agentic.evals import EvalInstance, HeldOutEvaluator
from spade_agentic.evals.heldout import RESERVED_RATES
from spade_agentic.hooks.records import Arm, Play, Program, Role, Sampling, StopReason, Trajectory
from spade_agentic.rollout.rendering import build_rendering
from spade_agentic.rollout.seeding import INSTANCE_SEEDS
from spade_agentic_plugins.blueprint import (
    DEFAULT_DOMAINS,
    Blueprint,
    BlueprintDesigner,
    BlueprintError,
    compile_blueprint,
    parse_blueprint,
    random_blueprint,
)
from spade_agentic_plugins.heldout import HeldOutOptions, evaluator, held_out_instances, reserved_instances
from spade_agentic_sims.kit import RESERVED_DOMAINS, Mods, SimEnv, is_reserved

SMALL = HeldOutOptions(domains=("banking",), chains=3, reserved_chains=8, instances=2, repeats=2)
ARMS = ("sampled", "greedy", "hinted")


def build(options: HeldOutOptions) -> Any:
    (factory,) = evaluator()
    return factory.build(options, None)


class Scripted:
    """``outcome`` says of a play whether it was won, or ``None`` for a void one; every call is noted, in order."""

    sampling = Sampling(temperature=0.8, max_tokens=33)

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.asked: list[tuple[str, int, Arm, Sampling, tuple[str, ...]]] = []

    async def play(
        self, instances: list[EvalInstance], repeats: int, arm: Arm, sampling: Sampling, *, purpose: str
    ) -> list[Play]:
        domains = tuple(sorted({str(program.origin.get("domain")) for program, _ in instances}))
        self.asked.append((purpose, repeats, arm, sampling, domains))
        plays = []
        for program, seed in instances:
            for repeat in range(repeats):
                won = self.outcome(program, seed, repeat, arm, sampling)
                stop = StopReason.ENVIRONMENT_FAULT if won is None else StopReason.ANSWERED
                plays.append(
                    Play(
                        f"{purpose}-{len(plays)}", program.program_id, seed, repeat, arm, Trajectory(Role.AGENT),
                        reward=float(bool(won)), won=bool(won), stop=stop, fault="crash" if won is None else None,
                    )
                )  # fmt: skip
        return plays


def worlds(name: str, count: int) -> list[EvalInstance]:
    return [(Program(f"# {name} {i // 2}", Skill.TOOL_SELECTION, origin={"domain": f"{name}{i % 2}"}), i) for i in range(count)]


def measured(main: list[EvalInstance], reserved: list[EvalInstance]) -> HeldOutEvaluator:
    return HeldOutEvaluator(
        main, reserved_instances=reserved, repeats=2, hinted_repeats=1, group_of=lambda p: str(p.origin["domain"])
    )


def apart(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if not key.startswith(("heldout/reserved/", "instances/reserved/"))}


# --- the main figure ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 12), st.sampled_from([0.0, 0.4, 1.0]))
async def test_whatever_the_reserved_plays_do_every_other_figure_is_the_one_without_them(
    table: int, main: int, reserved: int, chance: float
) -> None:
    """Random outcomes, void ones among them; the reserved worlds win with a chance of their own."""

    def outcome(program: Program, seed: int, repeat: int, arm: Arm, sampling: Sampling) -> bool | None:
        draw = random.Random(f"{table}|{program.program_id}|{seed}|{repeat}|{arm}|{sampling.temperature}").random()
        if seed > 0 and draw > 0.95:
            return None
        return draw < (chance if "reserved" in program.source else 0.5)

    mine, theirs = worlds("main", main), worlds("reserved", reserved)
    without = await measured(mine, []).evaluate(Scripted(outcome), step=0)
    both = await measured(mine, theirs).evaluate(Scripted(outcome), step=0)
    assert apart(both) == without
    alone = await measured(theirs, []).evaluate(Scripted(outcome), step=0)
    for rate in ARMS:
        for end in ("", "_low", "_high"):
            assert both[f"heldout/reserved/{rate}{end}"] == alone[f"heldout/{rate}{end}"]
        assert both[f"instances/reserved/{rate}"] == alone[f"instances/{rate}"]
    assert both["heldout/reserved/plays"] + both["heldout/reserved/void"] == reserved * 4


async def test_the_list_that_is_measured_is_the_same_with_and_without_the_reserved_domains() -> None:
    without = SMALL.model_copy(update={"reserved_chains": 0})
    assert build(SMALL).instances == build(without).instances == tuple(held_out_instances(["banking"], SMALL))


async def test_without_reserved_chains_nothing_of_them_is_played_or_answered() -> None:
    runner = Scripted(lambda *play: True)
    result = await build(SMALL.model_copy(update={"reserved_chains": 0})).evaluate(runner, step=0)
    assert {domain for *_, domains in runner.asked for domain in domains} == {"banking"}
    assert not any("reserved" in key for key in result)


# --- the protocol ---------------------------------------------------------------------------------------------------------


async def test_they_are_played_after_the_others_arm_for_arm_with_the_same_repeats_and_sampling() -> None:
    runner = Scripted(lambda *play: True)
    result = await build(SMALL).evaluate(runner, step=0)
    first, second = runner.asked[:3], runner.asked[3:]
    assert [purpose for purpose, *_ in first] == [f"heldout-{rate}" for rate in ARMS]
    assert [purpose for purpose, *_ in second] == [f"heldout-reserved-{rate}" for rate in ARMS]
    assert [call[1:4] for call in first] == [call[1:4] for call in second]
    assert {call[4] for call in first} == {("banking",)}
    assert {call[4] for call in second} == {RESERVED_DOMAINS}
    assert (result["heldout/plays"], result["heldout/reserved/plays"]) == (3 * 2 * 4, 8 * 2 * 4)
    assert all(f"heldout/{rate}" in result for rate in RESERVED_RATES)


async def test_without_hinted_repeats_the_reserved_domains_are_not_hinted_either() -> None:
    runner = Scripted(lambda *play: True)
    await build(SMALL.model_copy(update={"hinted_repeats": 0})).evaluate(runner, step=0)
    assert {arm for _, _, arm, *_ in runner.asked} == {Arm.PLAIN}


def test_every_reserved_instance_is_of_a_reserved_domain_chain_and_seed() -> None:
    instances = reserved_instances(SMALL)
    assert len(instances) == len(RESERVED_DOMAINS) * 8 * 2
    assert len({seed for _, seed in instances}) == len(instances)
    for program, seed in instances:
        assert seed >= INSTANCE_SEEDS, "training draws its seeds below"
        assert program.origin["domain"] in RESERVED_DOMAINS
        assert is_reserved(program.origin["domain"], program.origin["goals"])
    assert reserved_instances(SMALL) == instances
    assert reserved_instances(SMALL.model_copy(update={"seed": 1})) != instances


def test_no_draw_of_training_can_be_one_of_them() -> None:
    """The gate refuses each world; its text is no blueprint; no designer takes its domain, and none that is drawn has it."""
    evaluation = build(SMALL)
    measured_worlds = [program for program, _ in reserved_instances(SMALL)][:: SMALL.instances]
    for program in measured_worlds:
        assert evaluation.reserved(program) is not None
        goals = tuple(program.origin["goals"])
        with pytest.raises(BlueprintError, match="reserved_domain"):
            parse_blueprint(Blueprint(program.origin["domain"], program.skill, goals, Mods()).text())
        with pytest.raises(UserError, match="is reserved"):
            BlueprintDesigner((*DEFAULT_DOMAINS, program.origin["domain"]))
    rng = random.Random(5)
    drawn = [parse_blueprint(random_blueprint(rng, rng.choice(list(Skill)))) for _ in range(300)]
    assert not {blueprint.domain for blueprint in drawn} & set(RESERVED_DOMAINS)
    known = {program.canonical_hash for program in measured_worlds}
    assert len(known) == 8
    assert not {compile_blueprint(blueprint).canonical_hash for blueprint in drawn} & known


def test_every_reserved_instance_is_won_by_its_reference_solution() -> None:
    for program, seed in reserved_instances(SMALL):
        env = load_environment(program.source)
        assert isinstance(env, SimEnv)
        env.reset(seed=seed)
        for call in (call for instruction in env._instructions for call in instruction.solution):
            env.step(call.as_action())
        _, reward, terminated, _, _ = env.step({"type": "text", "text": "done"})
        assert (reward, terminated) == (1.0, True), program.source


def test_with_the_default_configs_context_every_reference_solution_fits_hint_and_all() -> None:
    """A loss says that the policy did not know how, never that the domain is too long for it."""
    config = load_config("tooluse.yaml")
    rendering = build_rendering(resolve_model(config.model.path), {"name": config.model.renderer.name})
    instances = reserved_instances(HeldOutOptions(**config.evaluation.options))
    assert len(instances) == 8 * 2
    for program, seed in instances:
        env = load_environment(program.source)
        assert isinstance(env, SimEnv)
        first, _ = env.reset(seed=seed)
        said: list[dict[str, Any]] = [
            {"role": "system", "content": f"{env.system}\n\n{program.origin['hint']}"}, {"role": "user", "content": first},
        ]  # fmt: skip
        for call in (call for instruction in env._instructions for call in instruction.solution):
            made = {"id": "1", "type": "function", "function": call.as_dict()}
            said.append({"role": "assistant", "content": "", "tool_calls": [made]})
            said.append({"role": "tool", "content": env.step(call.as_action())[0], "tool_call_id": "1"})
        used = len(rendering.prompt(said, env.tools()))
        assert used < config.model.context_tokens, f"{used} tokens: {program.origin['goals']}"


# --- options --------------------------------------------------------------------------------------------------------------


def test_a_reserved_domain_among_the_measured_ones_is_refused_since_it_would_be_averaged_in() -> None:
    with pytest.raises(ValueError, match=f"{RESERVED_DOMAINS[0]} is reserved and measured apart.*set reserved_chains"):
        HeldOutOptions(domains=("banking", RESERVED_DOMAINS[0]))


def test_more_reserved_worlds_than_there_are_is_an_error_that_names_the_option() -> None:
    with pytest.raises(UserError) as caught:
        reserved_instances(HeldOutOptions(reserved_chains=5000, hidden=0.0, faults=0.0))
    assert caught.value.where == "evaluation.options.reserved_chains"
