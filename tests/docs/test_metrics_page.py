"""Every metric that a step can have is explained in docs/reading-a-run.md."""

from __future__ import annotations

import re

import pytest
import torch

from spade_agentic.evals import HeldOutEvaluator
from spade_agentic.hooks.records import Arm, Program, Role, Sampling, Skill
from spade_agentic.learning.loss import LossConfig, TokenRecord, summarise
from spade_agentic.runs.progress import Progress
from spade_agentic.runs.reader import numbers
from spade_agentic.selfplay.audit import CHECKS, audit_step
from spade_agentic.selfplay.batch import BatchMaker
from spade_agentic.selfplay.metrics import play_metrics, regret_metrics, round_metrics, staleness_metrics
from spade_agentic.selfplay.rounds import Round
from spade_agentic.testing import sample_draft, sample_play, sample_reward_input


@pytest.fixture
def explained(page_named) -> set[str]:
    """The names between backticks in the page."""
    return set(re.findall(r"`([^`\s]+)`", page_named("docs/reading-a-run.md").text))


def _general(name: str) -> str:
    """A metric's name as the page writes it."""
    for arm in Arm:
        name = name.replace(f"plays/{arm.value}/", "plays/ARM/")
    for role in Role:
        name = re.sub(rf"^{role.value}/", "ROLE/", name)
    name = re.sub(r"^refused/.*", "refused/GATE:CODE", name)
    name = re.sub(r"^time/.*_s$", "time/STAGE_s", name)
    return re.sub(r"^plays/ARM/stop/.*", "plays/ARM/stop/REASON", name)


def _learning() -> dict[str, float]:
    one = torch.ones(4)
    record = TokenRecord(
        role=torch.tensor([0, 0, 1, 1]), logprobs=-one, prox=-one, rollout=-one, advantage=one, entropy=one, signal=one,
        reference=-one,
    )  # fmt: skip
    return summarise([record], [role.value for role in Role], LossConfig())


def _stage_times() -> dict[str, float]:
    progress = Progress("run", 1)
    progress.enter("playing")
    return progress.take_stage_times()


def test_every_metric_is_explained(explained: set[str]) -> None:
    plays = [sample_play(arm=arm) for arm in Arm]
    item = sample_reward_input()
    assert item.history.regret is not None
    made = Round(0, [], drafts=[sample_draft()])
    batch = BatchMaker(
        agent_sampling=None, designer_sampling=None, agent_group="instance", refused_advantage=-1.0, weight_cap=50.0, interval=4
    )  # type: ignore[arg-type]  # fmt: skip
    names = {
        *play_metrics(plays),
        *round_metrics(made, []),
        *regret_metrics({"a": item.history.regret, "b": item.history.regret}, [item, item]),
        *batch.make([], [])[1],
        "batch/designer_reward",
        *staleness_metrics(0, plays, [sample_draft()]),
        *_stage_times(),
        *_learning(),
        *audit_step(0, plays, [], [], {}),
        *(f"audit/{check}" for check in CHECKS), "audit/breach/CHECK",
    }  # fmt: skip
    assert {_general(name) for name in names} <= explained


async def test_every_metric_of_the_evaluation_is_explained(explained: set[str]) -> None:
    class Runner:
        sampling = Sampling()

        async def play(self, instances, repeats, arm, sampling, *, purpose):
            plays = [sample_play(arm=arm) for _ in instances for _ in range(repeats)]
            for play, (program, seed) in zip(plays, [i for i in instances for _ in range(repeats)], strict=True):
                play.env_id, play.seed = program.program_id, seed
            return plays

    worlds = [(Program(f"# {name}", Skill.TOOL_SELECTION, origin={"domain": name}), 1) for name in ("a", "b")]
    reserved = [(Program(f"# reserved {name}", Skill.TOOL_SELECTION, origin={"domain": name}), 1) for name in ("a", "b")]
    held_out = HeldOutEvaluator(
        worlds, reserved_instances=reserved, repeats=1, hinted_repeats=1, group_of=lambda program: program.origin["domain"]
    )
    result = await held_out.evaluate(Runner(), step=0)
    names = {re.sub("sampled|greedy|hinted", "RATE", name) for name in numbers(result)}
    assert {re.sub("RATE/[ab]$", "RATE/DOMAIN", name) for name in names} <= explained
