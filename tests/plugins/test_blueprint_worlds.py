"""From blueprints to programs and through the gates: sound worlds pass, and bad ones can be written, and are found."""

from __future__ import annotations

import random

import pytest
from sim_worlds import follow

from spade_agentic import GateReport, Program, Skill, UserError, load_environment
from spade_agentic.envs.gates import GateOptions, run_gates
from spade_agentic.testing import InProcessSandbox
from spade_agentic_plugins.blueprint import (
    DEFAULT_DOMAINS,
    Blueprint,
    compile_blueprint,
    parse_blueprint,
    random_blueprint,
    reserved_reason,
)
from spade_agentic_sims.kit import build_env, chain_hint, draw_chain, is_reserved

PLAIN = "domain: banking\nskill: tool_selection\ngoals: freeze_card"


async def gated(program: Program) -> GateReport:
    options = GateOptions(seeds=2, random_plays=1)
    return await run_gates(
        program, InProcessSandbox(), options=options, known=lambda canonical: False, reserved=reserved_reason
    )


async def test_drawn_blueprints_mostly_pass_the_gates() -> None:
    rng = random.Random(11)
    codes = []
    for index in range(90):
        text = random_blueprint(rng, list(Skill)[index % 6])
        report = await gated(compile_blueprint(parse_blueprint(text)))
        codes.append(report.refusal.code if report.refusal else "admitted")
    assert codes.count("admitted") >= 0.75 * len(codes)
    assert set(codes) <= {"admitted", "secret", "unsolvable", "too_long", "leak"}
    assert len(set(codes)) > 1


@pytest.mark.parametrize(
    ("change", "code"),
    [  # a secret card can be guessed, one of two, so no gate sees that it is told nowhere: the regret is to tell
        ("", None),
        ("\nhide: id\nfault: find_customer\ndistract: 3\nturns: 12", None),
        ("\nhide: secret", None),
        ("\nfault: freeze_card always", "unsolvable"),
        ("\nfault: list_cards always", "secret"),
        ("\nturns: 2", "too_long"),
        ("\nleak: yes", "leak"),
    ],
)
async def test_a_bad_world_can_be_written_and_the_gates_name_what_is_wrong(change: str, code: str | None) -> None:
    report = await gated(compile_blueprint(parse_blueprint(PLAIN + change)))
    assert (report.refusal.code if report.refusal else None) == code


@pytest.mark.parametrize("goals", ["move_own", "set_limit", "pay_person"])
async def test_a_world_whose_amount_is_told_nowhere_is_refused(goals: str) -> None:
    text = f"domain: banking\nskill: state_modification\ngoals: {goals}\nhide: secret"
    report = await gated(compile_blueprint(parse_blueprint(text)))
    assert report.refusal is not None
    assert report.refusal.code == "secret"


async def test_a_reserved_chain_is_refused_in_every_disguise() -> None:
    rng = random.Random(1)
    goals = draw_chain(rng, "support", 2, reserved=True).goals
    for order in (goals, goals[::-1]):
        for extra in ("", "\nhide: id", "\ndistract: 2"):
            text = f"domain: support\nskill: multi_step_workflows\ngoals: {', '.join(order)}{extra}"
            report = await gated(compile_blueprint(parse_blueprint(text)))
            assert report.refusal is not None
            assert (report.refusal.gate, report.refusal.code) == ("reserved", "reserved")


def test_only_reserved_chains_have_a_reason() -> None:
    rng = random.Random(4)
    for _ in range(50):
        chain = draw_chain(rng, "banking", 2, reserved=rng.random() < 0.5)
        program = compile_blueprint(Blueprint("banking", Skill.MULTI_STEP_WORKFLOWS, chain.goals))
        assert (reserved_reason(program) is not None) == is_reserved("banking", chain.goals)
    assert reserved_reason(Program("x = 1", Skill.DATA_RETRIEVAL)) is None


def test_a_compiled_program_plays_as_its_chain_does() -> None:
    rng = random.Random(8)
    for index in range(40):
        blueprint = parse_blueprint(random_blueprint(rng, list(Skill)[index % 6]))
        program = compile_blueprint(blueprint)
        here, loaded = build_env(blueprint.domain, blueprint.goals, blueprint.mods), load_environment(program.source)
        assert loaded.max_turns == here.max_turns
        assert loaded.tools() == here.tools()
        first, second = follow(here, index), follow(loaded, index)
        assert first.first == second.first
        assert [e.observation for e in first.exchanges] == [e.observation for e in second.exchanges]
        assert first.reward == second.reward
        assert program.origin["hint"] == chain_hint(blueprint.domain, blueprint.goals, blueprint.mods)


@pytest.mark.parametrize("skill", list(Skill))
@pytest.mark.parametrize("domain", DEFAULT_DOMAINS)
def test_drawn_blueprints_train_the_skill_and_are_never_reserved(skill: Skill, domain: str) -> None:
    rng = random.Random(2)
    for _ in range(20):
        blueprint = parse_blueprint(random_blueprint(rng, skill, domain=domain))
        assert blueprint.skill is skill
        assert blueprint.domain == domain
        assert not is_reserved(domain, blueprint.goals)


def test_drawn_blueprints_keep_to_the_goals_on_offer() -> None:
    rng = random.Random(2)
    goals = ("freeze_card", "cancel_card", "refund")
    for _ in range(20):
        blueprint = parse_blueprint(random_blueprint(rng, Skill.TOOL_SELECTION, domain="banking", goals=goals))
        assert set(blueprint.goals) <= set(goals)


def test_a_skill_that_no_goal_on_offer_trains_cannot_be_drawn() -> None:
    with pytest.raises(UserError, match="trains tool_selection"):
        random_blueprint(random.Random(1), Skill.TOOL_SELECTION, domain="banking", goals=("move_own", "sweep", "set_limit"))
