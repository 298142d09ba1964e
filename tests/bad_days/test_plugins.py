"""Plugins of a third party that raise, or answer with the wrong thing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bad_day_page import BadDay
from bad_day_runs import ToyRuns

from spade_agentic.runs.reader import StoreReader

Cli = Callable[..., Any]


@pytest.mark.bad_day("a plugin that raises when it is imported")
def test_a_plugin_that_raises_at_import(cli: Cli, day: BadDay, plugin_file: Callable[..., Path]) -> None:
    path = plugin_file("x = 1\ny = x / 0\n")
    result = cli("train", "tooluse", "--plugin", path, "--dry-run")
    day.seen(result)
    assert f"{path}:2" in result.err


# --- parts that raise ----------------------------------------------------------------------------------------------------

REWARD = """
    from spade_agentic import Factory, hookimpl

    class Mine:
        def reward(self, item):
            return 1 / 0 if broken() else item.history.regret.mean

    @hookimpl
    def designer_reward():
        return [Factory("mine", lambda options, context: Mine())]
"""
MEMORY = """
    from spade_agentic import Factory, hookimpl

    class Mine:
        def __init__(self): self.entries = 0
        def add(self, entry): self.entries += {add}
        def update(self, draft_id, *, win_rate, regret): {update}
        def sample(self, skill, *, seed): return {sample}
        def __len__(self): return self.entries
        def state_dict(self): return {{"entries": self.entries, "seen": {state}}}
        def load_state_dict(self, state): self.entries = state["entries"]

    @hookimpl
    def memory_store():
        return [Factory("mine", lambda options, context: Mine())]
"""
CURRICULUM = """
    from spade_agentic import Factory, Skill, hookimpl

    class Mine:
        def skills(self, round_index, slots): return {skills}
        def observe(self, histories): {observe}
        def state_dict(self): return {{}}
        def load_state_dict(self, state): pass

    @hookimpl
    def curriculum():
        return [Factory("mine", lambda options, context: Mine())]
"""
SKILLS = "[Skill.DATA_RETRIEVAL] * slots"
NO_SEEDS = "((), None)"
RAISING = "(1 / 0 if broken() else {})"


def memory(*, add: str = "1", update: str = "pass", sample: str = NO_SEEDS, state: str = "0") -> dict[str, str]:
    return {"selfplay.memory": MEMORY.format(add=add, update=update, sample=sample, state=state)}


def curriculum(*, skills: str = SKILLS, observe: str = "pass") -> dict[str, str]:
    return {"selfplay.curriculum": CURRICULUM.format(skills=skills, observe=observe)}


@pytest.mark.bad_day("a plugin that raises while the run goes")
@pytest.mark.parametrize(
    ("part", "committed"),
    [
        ({"selfplay.reward": REWARD}, 1),
        (memory(add=RAISING.format(1)), 0),
        (memory(update=RAISING.format(0)), 1),
        (memory(sample=RAISING.format(NO_SEEDS)), 0),
        (memory(state=RAISING.format(0)), 0),
        (curriculum(skills=RAISING.format(SKILLS)), 0),
        (curriculum(observe=RAISING.format(0)), 1),
    ],
    ids=["reward", "memory add", "memory update", "memory sample", "memory state", "curriculum skills", "curriculum observe"],
)
def test_a_part_that_raises_is_named_and_the_run_goes_on_when_it_is_mended(
    day: BadDay, runs: ToyRuns, part: dict[str, str], committed: int
) -> None:
    ((path, source),) = part.items()
    mine = runs.plugin(source)
    result = runs.train("--set", f"{path}=mine", plugins=[mine])
    day.seen(result)
    line = 1 + next(i for i, text in enumerate(Path(mine).read_text().splitlines()) if "1 / 0" in text)
    assert f"{mine}:{line}, in Mine." in result.err
    assert (runs.steps(), runs.status()) == (committed, "failed")
    runs.mend()
    assert runs.resume().code == 0
    assert (runs.steps(), runs.status()) == (4, "finished")


@pytest.mark.bad_day("a plugin whose factory raises, or builds the wrong thing")
@pytest.mark.parametrize(
    ("build", "said"),
    [("1 / 0", "raised ZeroDivisionError: division by zero"), ("object()", "which has no reward")],
)
def test_a_factory_that_raises_or_builds_nothing_of_use(day: BadDay, runs: ToyRuns, build: str, said: str) -> None:
    source = f"""
        from spade_agentic import Factory, hookimpl

        @hookimpl
        def designer_reward():
            return [Factory("mine", lambda options, context: {build})]
    """
    mine = runs.plugin(source)
    result = runs.train("--set", "selfplay.reward=mine", plugins=[mine])
    day.seen(result)
    assert said in result.err
    line = 1 + next(i for i, text in enumerate(Path(mine).read_text().splitlines()) if build in text)
    assert f"{mine}:{line}" in result.err


DESIGNER = """
    from spade_agentic import Factory, hookimpl

    class Mine:
        async def design(self, request, policy): return {draft}

    @hookimpl
    def env_designer():
        return [Factory("mine", lambda options, context: Mine())]
"""
HINTS = """
    from spade_agentic import Factory, hookimpl

    class Mine:
        async def write(self, program, policy, *, seed): return 7

    @hookimpl
    def hint_writer():
        return [Factory("mine", lambda options, context: Mine())]
"""
EVALUATOR = """
    from spade_agentic import Factory, hookimpl

    class Mine:
        async def evaluate(self, runner, *, step): return 0.5

    @hookimpl
    def evaluator():
        return [Factory("mine", lambda options, context: Mine())]
"""


@pytest.mark.bad_day("a plugin that answers with the wrong type")
@pytest.mark.parametrize(
    ("path", "source", "wanted"),
    [
        ("selfplay.reward", REWARD.replace("1 / 0", "float('nan')"), "Mine.reward answered nan, not a finite number"),
        ("selfplay.reward", REWARD.replace("1 / 0", "'high'"), "Mine.reward answered 'high', not a finite number"),
        ("selfplay.memory", memory(sample="[]")["selfplay.memory"], "Mine.sample answered [], not a pair"),
        ("selfplay.curriculum", curriculum(skills="['planning'] * slots")["selfplay.curriculum"], "not a list of 2 skills"),
        ("selfplay.curriculum", curriculum(skills="[]")["selfplay.curriculum"], "Mine.skills answered [], not a list of 2"),
        ("selfplay.designer", DESIGNER.format(draft="None"), "Mine.design answered None, not a Draft"),
        ("selfplay.hint_writer", HINTS, "Mine.write answered 7, not a text or None"),
        ("evaluation", EVALUATOR, "Mine.evaluate answered 0.5, not a mapping"),
    ],
)
def test_a_wrong_answer_is_named_with_its_class(day: BadDay, runs: ToyRuns, path: str, source: str, wanted: str) -> None:
    mine = runs.plugin(source)
    result = runs.train("--set", f"{path}.name=mine", plugins=[mine])
    day.seen(result)
    assert wanted in result.err
    assert f"in: {mine}:" in result.err


@pytest.mark.bad_day("a plugin whose state JSON cannot hold")
def test_a_state_that_is_no_json(day: BadDay, runs: ToyRuns) -> None:
    mine = runs.plugin(memory(state="{1, 2}")["selfplay.memory"])
    day.seen(runs.train("--set", "selfplay.memory=mine", plugins=[mine]))
    assert runs.steps() == 0


# --- parts that may fail without harm --------------------------------------------------------------------------------------


@pytest.mark.bad_day("a life-cycle hook that raises")
def test_a_life_cycle_hook_that_raises_is_counted(day: BadDay, runs: ToyRuns) -> None:
    mine = runs.plugin("""
        from spade_agentic import hookimpl

        @hookimpl
        def step_committed(step):
            raise KeyError(step)

        @hookimpl
        def play_finished():
            raise OSError("no")
    """)
    result = runs.train(plugins=[mine])
    day.seen(result)
    assert (runs.steps(), runs.status()) == (4, "finished")
    plays = [event["count"] for event in runs.events("hook_failed") if event["hook"] == "play_finished"]
    assert plays == [1, 2, 4, 8, 16, 32]
    with StoreReader(runs.run) as reader:
        assert reader.metrics()[-1].metrics["hook_errors"] == 48 + 3


@pytest.mark.bad_day("a tracker that raises")
def test_a_tracker_that_raises_costs_nothing(day: BadDay, runs: ToyRuns) -> None:
    mine = runs.plugin("""
        from spade_agentic import Factory, hookimpl

        class Mine:
            def log(self, step, metrics): raise ConnectionError("away")
            def close(self): raise ConnectionError("away")

        @hookimpl
        def tracker():
            return [Factory("mine", lambda options, context: Mine())]
    """)
    result = runs.train("--set", "trackers=[jsonl, mine]", plugins=[mine])
    day.seen(result)
    assert (runs.steps(), runs.status()) == (4, "finished")
    assert len((runs.run / "metrics.jsonl").read_text().splitlines()) == 4 + 2
