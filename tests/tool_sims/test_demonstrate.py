"""Demonstrated plays: right choices, wrong turns, and what a careless agent does after them."""

from __future__ import annotations

from sim_worlds import follow

from spade_agentic import ToolCall
from spade_agentic_sims.demonstrate import demonstrate
from spade_agentic_sims.kit import Alternative, Mods, Step, build_env


def choose_at(decision: str, index: int = 0, *, times: int = 1):
    """Take alternative ``index`` at the first ``times`` decisions of a kind."""
    left = [times]

    def choose(step: Step) -> Alternative | None:
        if step.decision != decision or not left[0]:
            return None
        left[0] -= 1
        return step.alternatives[index]

    return choose


def test_the_right_actions_are_those_of_the_script() -> None:
    env = build_env("support", ("assign_ticket", "lock_device"), Mods(hide_id=True))
    played = follow(env, 2)
    assert [exchange.action for exchange in played.exchanges] == [step.call for step in env.script()]
    assert played.won
    assert played.exchanges[-1].observation == ""


def test_answering_too_early_ends_the_play() -> None:
    env = build_env("support", ("lock_both",))
    played = demonstrate(env, seed=1, choose=choose_at("go_on"))
    assert played.exchanges[-1].action == "done"
    assert not played.won
    assert not played.exchanges[-1].right


def test_an_alternative_that_settles_nothing_is_followed_by_the_same_step() -> None:
    env = build_env("banking", ("report_limit",), Mods(hide_id=True))
    played = demonstrate(env, seed=1, choose=choose_at("look_up_first", times=2))
    assert [exchange.right for exchange in played.exchanges[:3]] == [False, False, True]
    assert played.exchanges[0].step is played.exchanges[2].step
    assert played.won


def test_someone_who_reads_the_wrong_customer_goes_on_with_that_customer() -> None:
    env = build_env("banking", ("freeze_card",), Mods(hide_id=True))
    played = demonstrate(env, seed=1, choose=choose_at("pick_among_hits"))
    wrong = played.exchanges[1].action
    assert isinstance(wrong, ToolCall)
    card = played.exchanges[2].action
    assert isinstance(card, ToolCall)
    assert env.state["cards"][card.arguments["card"]]["customer"] == wrong.arguments["customer"]
    assert played.exchanges[-1].action == "done"
    assert not played.won


def test_whoever_sees_no_further_request_takes_the_work_for_done() -> None:
    env = build_env("banking", ("freeze_card", "report_limit"))
    played = demonstrate(env, seed=1, choose=choose_at("near_synonym"))
    assert [exchange.action for exchange in played.exchanges][-1] == "done"
    assert len(played.exchanges) == 3


def test_a_fault_is_met_and_mended_wherever_the_agent_is() -> None:
    env = build_env("banking", ("freeze_card",), Mods(fault="freeze_card"))
    for seed in range(10):
        played = follow(env, seed)
        failed = next(i for i, exchange in enumerate(played.exchanges) if "error" in exchange.observation)
        assert played.exchanges[failed + 1].step.decision == "recover"
        assert played.won


def test_giving_up_at_a_fault_loses() -> None:
    env = build_env("banking", ("freeze_card",), Mods(fault="freeze_card"))
    played = demonstrate(env, seed=1, choose=choose_at("recover", 1))
    assert played.exchanges[-1].action == "done"
    assert not played.won


def test_the_play_ends_at_the_turn_limit() -> None:
    env = build_env("banking", ("report_limit",), Mods(hide_id=True, turns=3))
    played = demonstrate(env, seed=1, choose=lambda step: step.alternatives[0] if step.decision == "look_up_first" else None)
    assert len(played.exchanges) == 3
    assert played.reward == 0.0
