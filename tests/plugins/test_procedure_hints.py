"""The hint writers that need no model."""

from __future__ import annotations

from spade_agentic import PluginManager, Program, Skill
from spade_agentic.rollout.episode import with_hint
from spade_agentic.testing import ScriptedPolicy, check_hint_writer
from spade_agentic_plugins.blueprint import compile_blueprint, parse_blueprint
from spade_agentic_plugins.procedure_hints import NullHints, ProcedureHints

WORLD = "domain: banking\nskill: error_recovery\ngoals: freeze_card, refund\nfault: list_cards"


async def test_the_procedure_comes_with_the_program_and_costs_no_token() -> None:
    policy = ScriptedPolicy([])
    program = compile_blueprint(parse_blueprint(WORLD))
    hint = await ProcedureHints().write(program, policy, seed=1)
    assert hint == program.origin["hint"]
    assert "list_cards, then freeze_card on the card" in hint
    assert "renew_session" in hint
    assert policy.trajectory.sampled_tokens == 0


async def test_a_program_without_a_procedure_gets_no_hint() -> None:
    program = Program("x = 1", Skill.DATA_RETRIEVAL)
    assert await ProcedureHints().write(program, ScriptedPolicy([]), seed=1) is None


async def test_the_null_hint_leaves_both_arms_the_same() -> None:
    hint = await NullHints().write(compile_blueprint(parse_blueprint(WORLD)), ScriptedPolicy([]), seed=1)
    assert hint is not None
    assert with_hint("Do it.", hint) == "Do it."


def test_both_writers_are_offered_and_keep_the_contract(manager: PluginManager) -> None:
    factories = manager.factories("hint_writer")
    assert {"procedure", "null"} <= set(factories)
    assert isinstance(factories["procedure"].build(None, None), ProcedureHints)
    assert isinstance(factories["null"].build(None, None), NullHints)
    check_hint_writer(lambda folder: ProcedureHints())
    check_hint_writer(lambda folder: NullHints())
