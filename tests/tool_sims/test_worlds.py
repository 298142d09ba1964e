"""What holds for every world that the simulators make, over thousands of drawn chains and seeds."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys

import pytest
from sim_worlds import (
    ANSWER_ACTION,
    DOMAINS,
    REPORTS,
    as_text,
    decisions,
    drawn_worlds,
    follow,
    offered,
    play_at_random,
    play_calls,
    solution,
    tells,
)

from spade_agentic import Program, ToolCall, load_environment
from spade_agentic_sims.demonstrate import demonstrate
from spade_agentic_sims.kit import Alternative, Chain, Mods, Step, build_env, chain_hint
from spade_agentic_sims.source import chain_program

pytestmark = pytest.mark.parametrize("domain", DOMAINS)


@pytest.mark.parametrize("part", range(3))
def test_the_reference_solution_wins(domain: str, part: int) -> None:
    for chain, seed in drawn_worlds(domain, 500, seed=part):
        env = chain.env()
        calls = solution(env, seed)
        assert len(calls) + 1 <= env.max_turns, chain
        reward, shown = play_calls(env, seed, calls)
        assert reward == 1.0, (chain, seed, shown)


@pytest.mark.parametrize("part", range(3))
def test_criteria_are_false_at_reset_and_answering_at_once_loses(domain: str, part: int) -> None:
    for chain, seed in drawn_worlds(domain, 400, seed=10 + part):
        env = chain.env()
        env.reset(seed=seed)
        assert not any(env.probe()["criteria"]), (chain, seed)
        _, reward, terminated, _, _ = env.step(ANSWER_ACTION)
        assert (reward, terminated) == (0.0, True), (chain, seed)


def test_doing_nothing_until_the_turn_limit_loses(domain: str) -> None:
    for chain, seed in drawn_worlds(domain, 100, seed=20):
        env = chain.env()
        env.reset(seed=seed)
        for turn in range(env.max_turns):
            _, reward, terminated, truncated, _ = env.step({"type": "nothing"})
            assert (reward, terminated) == (0.0, False)
            assert truncated == (turn == env.max_turns - 1)


@pytest.mark.parametrize("part", range(2))
def test_random_calls_lose(domain: str, part: int) -> None:
    """Even calls with values that were shown: about one play in a hundred may hit a chain with a single goal by luck."""
    rng = random.Random(part)
    plays = [(chain, play_at_random(chain.env(), seed, rng)) for chain, seed in drawn_worlds(domain, 300, seed=30 + part)]
    assert sum(reward for _, reward in plays) <= 0.01 * len(plays)
    assert not any(reward for chain, reward in plays if len(chain.goals) > 1)


def test_part_of_the_solution_loses(domain: str) -> None:
    for chain, seed in drawn_worlds(domain, 100, seed=40):
        env = chain.env()
        calls = solution(env, seed)
        assert play_calls(env, seed, calls[:-1])[0] == 0.0, (chain, seed)


def test_one_change_too_many_loses(domain: str) -> None:
    """A win needs exactly the requested change: with a number logged for a record that nobody named, it is lost."""
    for chain, seed in drawn_worlds(domain, 100, seed=50):
        env = build_env(domain, (*chain.goals[:2], REPORTS[domain]), Mods(hide_id=chain.mods.hide_id))
        calls = solution(env, seed)
        answers = {call["arguments"]["record"] for call in calls if call["name"] == "log_answer"}
        other = next(key for table in env.belongings for key in env.state[table] if key not in answers)
        extra = {"name": "log_answer", "arguments": {"record": other, "value": 7}}
        reward, shown = play_calls(env, seed, [extra, *calls])
        assert shown[1] == "ok"
        assert reward == 0.0, (chain, seed)


def test_every_argument_was_told_before_it_is_used(domain: str) -> None:
    for chain, seed in drawn_worlds(domain, 250, seed=60):
        env = chain.env()
        calls = solution(env, seed)
        _, shown = play_calls(env, seed, calls)
        for index, item in enumerate(calls):
            for name, value in item["arguments"].items():
                told = any(tells(text, value) for text in shown[: index + 1])
                assert told or value in offered(env, item, name), (chain, seed, item, name)


def test_a_wrong_turn_never_wins_unless_it_settles_nothing(domain: str) -> None:
    """An alternative after which the agent goes on as if it had been right loses; of the others, many can be mended."""
    mended = 0
    for chain, seed in drawn_worlds(domain, 60, seed=70):
        env = Chain(chain.domain, chain.goals, Mods(hide_id=chain.mods.hide_id)).env()
        for position, step in enumerate(decisions(env, seed)):
            for alternative in step.alternatives:
                played = demonstrate(env, seed=seed, choose=_wrong_once(position, alternative))
                taken = [as_text(exchange.action) for exchange in played.exchanges if not exchange.right]
                assert taken == [as_text(alternative.action)]
                mended += played.won
                settles = alternative.then != "again" or alternative.action == "done"
                breached = any("breach" in exchange.observation for exchange in played.exchanges)
                assert not (played.won and (settles or breached)), (chain, seed, step.decision, alternative)
    assert mended > 20


def _wrong_once(position: int, alternative: Alternative):
    asked = iter(range(10**6))
    return lambda step: alternative if next(asked) == position else None


def test_the_right_choices_win_and_stay_within_the_turn_limit(domain: str) -> None:
    for chain, seed in drawn_worlds(domain, 200, seed=80):
        played = follow(chain.env(), seed)
        assert played.won, (chain, seed)
        assert all(exchange.right for exchange in played.exchanges)
        assert len(played.exchanges) <= chain.env().max_turns


def test_a_hint_holds_no_value_of_an_instance(domain: str) -> None:
    for chain, seed in drawn_worlds(domain, 120, seed=90):
        env = chain.env()
        hint = chain_hint(chain.domain, chain.goals, chain.mods)
        for item in solution(env, seed):
            for name, value in item["arguments"].items():
                assert not tells(hint, value) or value in offered(env, item, name), (chain, hint, value)
        for table in env.state.values():
            assert not isinstance(table, dict) or not any(tells(hint, key) for key in table)


def test_a_seed_gives_one_instance_and_seeds_differ(domain: str) -> None:
    for chain, seed in drawn_worlds(domain, 100, seed=100):
        first, second = chain.env(), chain.env()
        assert first.reset(seed=seed) == second.reset(seed=seed)
        assert first.probe() == second.probe()
        assert first.state == second.state
        second.reset(seed=seed + 1)
        assert first.state != second.state


_FINGERPRINT = """
import hashlib, json, sys
from spade_agentic_sims.kit import Mods, build_env, get_domain
found = hashlib.sha256()
for name, kind in sorted(get_domain(sys.argv[1]).goal_kinds.items()):
    for seed in range(4):
        env = build_env(sys.argv[1], (name,), Mods(hide_id=True, distract=3, fault=kind.tools[-1]))
        text = env.reset(seed=seed)[0]
        found.update(json.dumps([text, env.probe(), env.tools(), env.state], sort_keys=False).encode())
print(found.hexdigest())
"""


def test_processes_with_different_hash_seeds_make_the_same_worlds(domain: str) -> None:
    prints = {
        subprocess.run(
            [sys.executable, "-c", _FINGERPRINT, domain],
            env={"PYTHONHASHSEED": hash_seed, "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4711")
    }
    assert len(prints) == 1
    assert len(prints.pop().strip()) == hashlib.sha256().digest_size * 2


def test_no_string_that_the_agent_sees_has_a_call_of_the_solution(domain: str) -> None:
    for chain, seed in drawn_worlds(domain, 150, seed=110):
        env = chain.env()
        calls = solution(env, seed)
        shown = "\n".join([env.system, json.dumps(env.tools()), *play_calls(env, seed, calls)[1]])
        assert not any(json.dumps(item) in shown for item in calls)
        assert "criteria" not in shown


def test_a_compiled_program_plays_as_the_environment_of_its_chain_does(domain: str) -> None:
    for chain, seed in drawn_worlds(domain, 60, seed=120):
        program = chain_program(chain)
        assert isinstance(program, Program)
        loaded = load_environment(program.source)
        here = chain.env()
        assert (loaded.max_turns, loaded.system, loaded.tools()) == (here.max_turns, here.system, here.tools())
        played, expected = follow(loaded, seed), follow(here, seed)
        assert [played.first, *(e.observation for e in played.exchanges)] == [
            expected.first,
            *(e.observation for e in expected.exchanges),
        ]
        assert played.won


def test_an_unknown_tool_or_wrong_type_is_an_error_that_can_be_mended(domain: str) -> None:
    for chain, seed in drawn_worlds(domain, 60, seed=130):
        env = chain.env()
        calls = solution(env, seed)
        junk = [{"name": "no_such_tool", "arguments": {}}, {"name": calls[0]["name"], "arguments": {"nothing": 1}}]
        reward, shown = play_calls(env, seed, [*junk, *calls])
        assert all("error" in json.loads(text) for text in shown[1:3])
        assert reward == 1.0


def test_a_step_of_the_script_is_a_call_or_the_answer(domain: str) -> None:
    for chain, seed in drawn_worlds(domain, 100, seed=140):
        env = chain.env()
        env.reset(seed=seed)
        script = env.script()
        assert script[-1].call == "done"
        assert all(isinstance(step.call, ToolCall) for step in script[:-1])
        assert all(isinstance(step, Step) for step in script)
        assert not any(step.alternatives for step in script if step.decision is None)
