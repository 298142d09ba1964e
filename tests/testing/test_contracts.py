"""The contract tests find what they are for: for every rule there is an object that breaks it, and is told so."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spade_agentic import Draft, Program, Refusal, Skill, StepObservation
from spade_agentic.errors import EnvironmentFault
from spade_agentic.testing import (
    ContractViolation,
    InProcessSandbox,
    check_curriculum,
    check_designer,
    check_engine,
    check_evaluator,
    check_hint_writer,
    check_learner,
    check_memory,
    check_reward,
    check_sandbox,
    check_tool_sim,
    check_tracker,
    sample_completion,
    sample_program,
)
from spade_agentic.testing.contracts import run_contract
from spade_agentic.testing.contracts_engines import LEARNER
from spade_agentic.testing.rules import flat_numbers, is_json


def broken(check: Callable[[Any], None], make: Callable[[], Any]) -> str:
    """What the contract says of the object."""
    with pytest.raises(ContractViolation) as caught:
        check(lambda folder: make())
    return str(caught.value)


# --- designers and hint writers ------------------------------------------------------------------------------------------


class Designer:
    """A designer that does everything right, with one thing to change."""

    def __init__(self, **change: Any) -> None:
        self.change = change

    async def design(self, request: Any, policy: Any) -> Draft:
        text, _ = await policy.say([{"role": "user", "content": str(self.change.get("prompt", lambda: "")())}])
        values = {
            "draft_id": request.draft_id, "skill": request.skill, "round_index": request.round_index, "slot": request.slot,
            "attempt": request.attempt, "trajectory": policy.trajectory, "text": text, "refusal": Refusal("d", "malformed"),
        }  # fmt: skip
        if self.change.get("raises") and "python" in text:
            raise ValueError(text)
        return Draft(**{**values, **self.change.get("draft", {})})


def test_a_sound_designer_passes() -> None:
    check_designer(lambda folder: Designer())


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"raises": True}, "Whatever the policy says"),
        ({"draft": {"refusal": None}}, "Whatever the policy says"),
        ({"draft": {"program": sample_program()}}, "Whatever the policy says"),
        ({"draft": {"slot": 9}}, "A draft carries its request's"),
        ({"draft": {"trajectory": None}}, "has the policy's trajectory"),
        ({"prompt": random.random}, "The same request and the same answers"),
        ({"draft": {"program": sample_program(), "refusal": None}}, "is for the skill that was asked for"),
    ],
)
def test_a_designer_that_breaks_a_rule_is_told_which(change: dict[str, Any], rule: str) -> None:
    assert rule in broken(check_designer, lambda: Designer(**change))


@pytest.mark.parametrize(
    ("hint", "rule"), [(lambda: 3, "a text or None"), (lambda: str(random.random()), "give the same hint")]
)
def test_a_hint_writer_that_breaks_a_rule_is_told_which(hint: Callable[[], Any], rule: str) -> None:
    class Writer:
        async def write(self, program: Any, policy: Any, *, seed: int) -> Any:
            return hint()

    assert rule in broken(check_hint_writer, Writer)


# --- rewards, memories, curricula, evaluators ----------------------------------------------------------------------------


class Observing:
    """A reward that keeps what it saw, and forgets it in its state."""

    def __init__(self) -> None:
        self.seen = 0

    def reward(self, item: Any) -> float:
        return float(self.seen)

    def observe(self, items: Any) -> None:
        self.seen += len(items)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("reward", "rule"),
    [
        (lambda item: float("nan"), "finite number or None"),
        (lambda item: item.win_rate * 2, "finite number or None"),
        (lambda item: random.random(), "Asking twice changes nothing"),
        (lambda item: float(item.history.faults), "earns no more"),
    ],
)
def test_a_reward_that_breaks_a_rule_is_told_which(reward: Callable[[Any], Any], rule: str) -> None:
    made = type("Reward", (), {"reward": lambda self, item: reward(item)})
    assert rule in broken(check_reward, made)


def test_a_reward_that_forgets_its_averages_is_told() -> None:
    assert "has a state" in broken(check_reward, Observing)
    without = type("Without", (), {"reward": lambda self, item: 0.0, "observe": lambda self, items: None})
    assert "not state_dict" in broken(check_reward, without)


class ListMemory:
    """A memory that gives what was added last, whatever was asked for."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def add(self, entry: Any) -> None:
        self.entries.append(entry)

    def update(self, draft_id: str, *, win_rate: float | None, regret: float | None) -> None:
        pass

    def sample(self, skill: Skill, *, seed: int) -> tuple[tuple[Any, ...], Any]:
        random.shuffle(self.entries)
        return tuple(self.entries[:3]), None

    def __len__(self) -> int:
        return len(self.entries)

    def state_dict(self) -> dict[str, Any]:
        return {"entries": self.entries}

    def load_state_dict(self, state: Any) -> None:
        pass


def test_a_memory_that_breaks_every_rule_is_told_all_of_them() -> None:
    said = broken(check_memory, ListMemory)
    for rule in ("no second entry", "of the skill that was asked for", "same seed samples", "An update changes", "restored"):
        assert rule in said


class Forgetful(ListMemory):
    """Keeps nothing, without a word."""

    def add(self, entry: Any) -> None:
        pass


class FalselyForgetful(ListMemory):
    """Says that it keeps nothing, and keeps all of it."""

    capacity = 0


@pytest.mark.parametrize("make", [Forgetful, FalselyForgetful])
def test_a_memory_keeps_nothing_exactly_where_it_says_so(make: Callable[[], Any]) -> None:
    assert "It begins empty, grows" in broken(check_memory, make)


def test_a_curriculum_that_breaks_every_rule_is_told_all_of_them() -> None:
    class Curriculum:
        def skills(self, round_index: int, slots: int) -> list[Skill]:
            return random.choices(list(Skill), k=min(slots, 8))

        def observe(self, histories: Any) -> None:
            pass

        def state_dict(self) -> dict[str, Any]:
            return {"skills": {1: 2}}

        def load_state_dict(self, state: Any) -> None:
            pass

    said = broken(check_curriculum, Curriculum)
    for rule in ("gets n skills", "Asking twice", "restored"):
        assert rule in said


def test_an_evaluator_that_breaks_every_rule_is_told_all_of_them() -> None:
    class Evaluator:
        async def evaluate(self, runner: Any, *, step: int) -> Any:
            plays = await runner.play([(sample_program(), step + 3)], 1, "plain", runner.sampling, purpose="x")
            return {"won": {play.seed for play in plays}, "step": step}

    said = broken(check_evaluator, Evaluator)
    for rule in ("JSON can hold", "training never draws", "Two evaluations", "always wins"):
        assert rule in said


# --- worlds --------------------------------------------------------------------------------------------------------------


class Sim:
    """A simulator of one program, with one thing to change."""

    name = "sim"
    module = "spade_agentic.testing.samples"

    def __init__(self, source: str | None = None, **change: Any) -> None:
        self.__dict__.update(change)
        self.source = source or sample_program().source

    def describe(self) -> dict[str, Any]:
        function = {"name": "set_counter", "description": "Set it.", "parameters": {}}
        return {"goals": {"set": {}}, "tools": [{"type": "function", "function": function}]}

    def example(self, *, seed: int) -> Program:
        return sample_program(source=f"{self.source}# {seed}\n")


def test_a_sound_simulator_passes() -> None:
    check_tool_sim(lambda folder: Sim())


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"module": "spade_no_such_module"}, "can be imported"),
        ({"name": "my sim"}, "can be imported"),
        ({"describe": lambda: {"goals": {}, "tools": []}}, "goals by name"),
        ({"describe": lambda: {"goals": {1: 2}, "tools": [1]}}, "goals by name"),
        ({"example": lambda seed: sample_program()}, "different seeds"),
        ({"source": sample_program().source.replace("self.value = number", "pass")}, "solution of an example wins"),
        ({"source": sample_program().source.replace("lambda: self.value == number", "lambda: True")}, "at once loses"),
        ({"source": sample_program().source.replace("rng.sample(range(10, 1000), 2)", "(11, 12)")}, "different seeds give"),
    ],
)
def test_a_simulator_that_breaks_a_rule_is_told_which(change: dict[str, Any], rule: str) -> None:
    assert rule in broken(check_tool_sim, lambda: Sim(**change))


class LyingPlay:
    """A play that never fails and always wins."""

    async def reset(self, seed: int) -> StepObservation:
        return StepObservation(str(random.random()))

    async def step(self, action: Any) -> StepObservation:
        return StepObservation("ok", 1.0, True)

    async def probe(self) -> dict[str, Any]:
        return {"solution": []}

    async def close(self) -> None:
        pass


class LyingSandbox:
    """A sandbox that loads everything; ``faults`` are the programs that it refuses, all with one code."""

    async def start(self) -> None:
        pass

    async def load(self, program: Program) -> Any:
        if "def (" in program.source:
            raise EnvironmentFault("broken")
        return self

    manifest = {"kind": "tool", "max_turns": 6, "tools": []}  # noqa: RUF012

    async def play(self) -> LyingPlay:
        return LyingPlay()

    async def close(self) -> None:
        pass

    async def stop(self) -> None:
        pass


def test_a_sandbox_that_breaks_the_rules_is_told_which() -> None:
    said = broken(check_sandbox, LyingSandbox)
    for rule in ("manifest says", "without tools", "Two plays of one program", "cannot be loaded", "A crash", "hangs"):
        assert rule in said


def test_an_unsafe_sandbox_is_not_asked_for_deadlines_only_where_it_says_so() -> None:
    check_sandbox(lambda folder: InProcessSandbox())


# --- engines, learners, trackers -----------------------------------------------------------------------------------------


def test_an_engine_that_breaks_the_rules_is_told_which() -> None:
    class Engine:
        base_url = ""

        async def start(self, model_dir: Path) -> None:
            pass

        async def complete(self, token_ids: Any, sampling: Any, **how: Any) -> Any:
            return sample_completion(random.randint(1, 12))

        async def publish(self, weights_dir: Path, version: int) -> None:
            pass

        async def stop(self) -> None:
            pass

    said = broken(check_engine, Engine)
    for rule in ("says why it ended", "The same seed draws", "new weights"):
        assert rule in said


def test_a_learner_that_does_not_learn_is_told() -> None:
    class Learner:
        def step(self, batch: Any) -> dict[str, Any]:
            return {"loss": float("nan"), "nested": {}}

        def save_weights(self, folder: Path) -> None:
            folder.mkdir()

        def save(self, folder: Path) -> None:
            pass

        def load(self, folder: Path) -> None:
            pass

        def close(self) -> None:
            pass

    said = broken(check_learner, Learner)
    assert "config.json" in said
    assert said.count("\n") == len(LEARNER) - 1


def test_a_tracker_that_chokes_or_meddles_is_told() -> None:
    class Tracker:
        def log(self, step: int, metrics: dict[str, float]) -> None:
            assert not any(value != value for value in metrics.values()), "not a number"
            metrics.clear()

        def close(self) -> None:
            pass

    said = broken(check_tracker, Tracker)
    assert "not finite" in said
    assert "as it was" in said


# --- how the rules are run -----------------------------------------------------------------------------------------------


def test_an_object_that_cannot_be_made_fails_every_rule_with_its_error() -> None:
    def make(folder: Path) -> Any:
        raise RuntimeError("out of luck")

    results = run_contract("tracker", make, subject="tracker mine")
    assert {(r.subject, r.passed, r.detail) for r in results} == {("tracker mine", False, "RuntimeError: out of luck")}


def test_every_rule_has_a_folder_of_its_own() -> None:
    folders: list[Path] = []

    def make(folder: Path) -> Any:
        folders.append(folder)
        raise RuntimeError

    run_contract("tracker", make)
    assert len(set(folders)) == len(folders)
    assert not any(folder.exists() for folder in folders)


@pytest.mark.parametrize(
    ("value", "good"),
    [({"a": [1, None, "x"]}, True), ({1: 2}, False), ((1,), False), (float("nan"), False), ({"a": {1, 2}}, False)],
)
def test_what_json_cannot_hold_is_found(value: Any, good: bool) -> None:
    assert is_json(value) is good


def test_metrics_that_are_not_flat_numbers_are_found() -> None:
    assert flat_numbers({"a": 1, "b": 0.5}) == []
    assert len(flat_numbers({"a": True, "b": float("inf"), "c": {}, 3: 1.0})) == 4
    assert flat_numbers([1]) == ["it is list, not a dict"]
