"""Plays: reset and step with Gymnasium's five-tuple, requests revealed one by one, and the verdict."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from spade_agentic import Instruction, TextEnv, ToolCall, ToolEnv, ToolError, tool
from spade_agentic.envs.contract import StepResult

DONE = {"type": "text", "text": "done"}


class Counter(ToolEnv):
    """Two requests; the step counter must not have been touched."""

    system = "Count."
    max_turns = 5

    def setup(self, rng: random.Random) -> Sequence[Instruction]:
        self.value, self.touched = 0, False
        self.targets = rng.sample(range(10, 99), 2)
        return [
            Instruction(f"Set it to {target}.", lambda target=target: self.value == target, [ToolCall("set_to", {"n": target})])
            for target in self.targets
        ]

    def verify(self) -> bool:
        return not self.touched

    @tool
    def set_to(self, n: int) -> str:
        """Set the counter."""
        self.value = n
        return "ok"

    @tool
    def touch(self) -> str:
        """Touch what must not be touched."""
        self.touched = True
        return "ok"

    @tool
    def crash(self) -> str:
        """A bug of the program."""
        raise KeyError("bug")


@pytest.fixture
def counter() -> Counter:
    env = Counter()
    env.reset(seed=7)
    return env


def set_to(n: int) -> dict[str, Any]:
    return {"type": "call", "name": "set_to", "arguments": {"n": n}}


def test_reset_shows_the_first_request_only(counter: Counter) -> None:
    observation, info = counter.reset(seed=7)
    assert observation == f"Set it to {counter.targets[0]}."
    assert info == {}


def test_a_seed_makes_the_instance(counter: Counter) -> None:
    texts = [counter.reset(seed=seed)[0] for seed in range(20)]
    assert texts == [Counter().reset(seed=seed)[0] for seed in range(20)]
    assert len(set(texts)) > 5


def test_a_reset_forgets_the_play_before(counter: Counter) -> None:
    counter.step({"type": "call", "name": "touch"})
    counter.step(set_to(counter.targets[0]))
    counter.reset(seed=7)
    assert counter.probe()["current"] == 0
    assert not counter.touched
    for _ in range(counter.max_turns - 1):
        assert counter.step({"type": "call", "name": "nothing"})[3] is False


def test_the_next_request_comes_with_the_observation_that_completes_the_one_before(counter: Counter) -> None:
    first, second = counter.targets
    observation, reward, terminated, truncated, info = counter.step(set_to(first))
    assert observation == f"ok\nSet it to {second}."
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info == {"error": False, "current": 1}


def test_an_answer_after_every_request_wins(counter: Counter) -> None:
    for target in counter.targets:
        counter.step(set_to(target))
    assert counter.step(DONE) == ("", 1.0, True, False, {"error": False, "current": 2})


@pytest.mark.parametrize("reached", [0, 1])
def test_an_answer_too_early_loses(counter: Counter, reached: int) -> None:
    for target in counter.targets[:reached]:
        counter.step(set_to(target))
    assert counter.step(DONE) == ("", 0.0, True, False, {"error": False, "current": reached})


def test_requests_are_reached_in_order(counter: Counter) -> None:
    second = counter.targets[1]
    assert counter.step(set_to(second))[4]["current"] == 0
    assert counter.step(DONE)[1] == 0.0


def test_a_request_that_was_reached_stays_reached(counter: Counter) -> None:
    first, second = counter.targets
    counter.step(set_to(first))
    counter.step(set_to(1))
    counter.step(set_to(second))
    assert counter.step(DONE)[1] == 1.0


def test_one_call_may_reach_several_requests() -> None:
    class Twice(Counter):
        def setup(self, rng: random.Random) -> Sequence[Instruction]:
            super().setup(rng)
            return [Instruction(f"Make it {text}.", lambda: self.value > 4, []) for text in ("big", "large", "huge")]

    env = Twice()
    env.reset(seed=1)
    observation, *_, info = env.step(set_to(5))
    assert observation == "ok\nMake it large.\nMake it huge."
    assert info["current"] == 3


def test_verify_has_the_last_word(counter: Counter) -> None:
    counter.step({"type": "call", "name": "touch"})
    for target in counter.targets:
        counter.step(set_to(target))
    assert counter.step(DONE)[1] == 0.0


def test_verify_is_asked_only_after_every_request_was_reached() -> None:
    class Strict(Counter):
        def verify(self) -> bool:
            raise AssertionError("asked too early")

    env = Strict()
    env.reset(seed=1)
    assert env.step(DONE)[1] == 0.0


def test_the_turn_limit_truncates_without_reward(counter: Counter) -> None:
    results = [counter.step({"type": "call", "name": "touch"}) for _ in range(5)]
    assert [truncated for _, _, _, truncated, _ in results] == [False] * 4 + [True]
    assert not any(terminated or reward for _, reward, terminated, _, _ in results)


def test_an_answer_in_the_last_turn_still_counts(counter: Counter) -> None:
    for n in (1, 2, *counter.targets):
        counter.step(set_to(n))
    assert counter.step(DONE)[1:4] == (1.0, True, False)


@pytest.mark.parametrize("ending", [DONE, None])
def test_a_step_after_the_end_needs_a_reset(counter: Counter, ending: Any) -> None:
    for _ in range(1 if ending else 5):
        counter.step(ending or {"type": "call", "name": "touch"})
    with pytest.raises(RuntimeError, match="reset first"):
        counter.step(DONE)
    counter.reset(seed=1)
    counter.step(set_to(3))


def test_a_step_before_any_reset_is_refused() -> None:
    with pytest.raises(RuntimeError, match="reset first"):
        Counter().step(DONE)


@pytest.mark.parametrize("action", [{}, {"type": "shout"}, {"type": None}, "done", None, 3, []])
def test_a_malformed_action_costs_a_turn_and_is_never_executed(counter: Counter, action: Any) -> None:
    observation, reward, terminated, _, info = counter.step(action)
    assert observation == '{"error": "malformed action"}'
    assert (reward, terminated, info["error"]) == (0.0, False, True)


def test_a_bug_of_the_program_is_not_swallowed(counter: Counter) -> None:
    with pytest.raises(KeyError, match="bug"):
        counter.step({"type": "call", "name": "crash"})


def test_the_probe_has_what_the_gates_need(counter: Counter) -> None:
    first, second = counter.targets
    assert counter.probe() == {
        "criteria": [False, False],
        "solution": [[{"name": "set_to", "arguments": {"n": n}}] for n in (first, second)],
        "instructions": [f"Set it to {first}.", f"Set it to {second}."],
        "current": 0,
    }
    counter.step(set_to(first))
    assert counter.probe()["criteria"] == [True, False]
    assert counter.probe()["current"] == 1


def test_no_observation_has_the_solution(counter: Counter) -> None:
    shown = [counter.reset(seed=3)[0], str(counter.tools()), counter.system]
    for target in counter.targets:
        shown.append(counter.step(set_to(target))[0])
    assert not any("arguments" in text and str(counter.targets[0]) in text for text in shown)


def test_setup_without_a_request_is_a_fault() -> None:
    class Empty(ToolEnv):
        def setup(self, rng: random.Random) -> Sequence[Instruction]:
            return []

    with pytest.raises(AssertionError, match="no instruction"):
        Empty().reset(seed=1)


def test_run_tool_is_where_a_subclass_watches_every_tool() -> None:
    class Watched(Counter):
        names: tuple[str, ...] = ()

        def run_tool(self, name: str, arguments: Any) -> Any:
            self.names += (name,)
            if name == "touch":
                raise ToolError("hands off")
            return super().run_tool(name, arguments)

    env = Watched()
    env.reset(seed=1)
    env.step(set_to(4))
    assert env.step({"type": "call", "name": "touch"})[0] == '{"error": "hands off"}'
    env.step({"type": "call", "name": "set_to", "arguments": {"n": "4"}})
    assert env.names == ("set_to", "touch")


def test_a_call_is_data() -> None:
    call = ToolCall("set_to", {"n": 3})
    assert call.as_dict() == {"name": "set_to", "arguments": {"n": 3}}
    assert call.as_action() == set_to(3)
    assert ToolCall("touch").as_dict() == {"name": "touch", "arguments": {}}


# --- text environments ---------------------------------------------------------------------------------------------------


class Echo(TextEnv):
    """Say the word."""

    max_turns = 3

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        self.word = random.Random(seed).choice(["alpha", "beta", "gamma"])
        return f"Say {self.word}.", {}

    def step(self, text: str) -> StepResult:
        won = text == self.word
        return ("yes" if won else "no"), float(won), won, False, {}

    def solution(self) -> Sequence[str]:
        return [self.word]


def test_a_text_environment_takes_text_and_has_a_solution_of_texts() -> None:
    env = Echo()
    assert env.reset(seed=2) == Echo().reset(seed=2)
    assert env.step("nonsense") == ("no", 0.0, False, False, {})
    (answer,) = env.solution()
    assert env.step(answer) == ("yes", 1.0, True, False, {})


def test_an_unfinished_environment_cannot_be_made() -> None:
    with pytest.raises(TypeError):
        TextEnv()  # type: ignore[abstract]
    with pytest.raises(TypeError):
        ToolEnv()  # type: ignore[abstract]
