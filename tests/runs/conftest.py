"""Records to store, and a run that has some."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spade_agentic.hooks.records import (
    Arm,
    Completion,
    Draft,
    Environment,
    FinishReason,
    ParseOutcome,
    Play,
    Program,
    Refusal,
    Regret,
    Role,
    Segment,
    Skill,
    StopReason,
    Trajectory,
    Turn,
)
from spade_agentic.runs.live import PlainView
from spade_agentic.runs.recorder import RunRecorder


@dataclass
class Step:
    """What a step hands to its commit."""

    step: int
    plays: list[Play] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    environments: list[Environment] = field(default_factory=list)
    regrets: dict[str, Regret] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


class Make:
    """Builds records that look like a run's."""

    def trajectory(self, seed: int, role: Role = Role.AGENT) -> Trajectory:
        rng = random.Random(seed)
        segment = Segment()
        segment.append_context([rng.randrange(500) for _ in range(30)])
        ids = tuple(rng.randrange(500) for _ in range(8))
        logprobs = tuple(-rng.random() for _ in ids)
        segment.append_completion(Completion(ids, logprobs, (seed,) * len(ids), FinishReason.STOP))
        return Trajectory(role, [segment])

    def play(self, play_id: str, env_id: str, *, arm: Arm = Arm.PLAIN, won: bool = True, void: bool = False) -> Play:
        number = sum(map(ord, play_id))
        return Play(
            play_id, env_id, seed=number, repeat=0, arm=arm, trajectory=self.trajectory(number), reward=float(won), won=won,
            stop=StopReason.ENVIRONMENT_FAULT if void else StopReason.ANSWERED, fault="crash" if void else None,
            turns=[Turn("I look.", ParseOutcome.CALL, ({"name": "find", "arguments": {"q": 1}},), ("found é\ud800",))],
            first_observation="Find it.", duration_s=0.25,
        )

    def draft(self, draft_id: str, *, refused: bool = False, reward: float | None = None, round_index: int = 0) -> Draft:
        return Draft(
            draft_id, Skill.DATA_RETRIEVAL, round_index, slot=0, attempt=0, trajectory=self.trajectory(3, Role.DESIGNER),
            text="goals: x", program=None if refused else self.program(draft_id), reward=reward,
            refusal=Refusal("blueprint", "unknown_goal", "x") if refused else None,
        )

    def program(self, name: str) -> Program:
        return Program(f"# {name}", Skill.DATA_RETRIEVAL, origin={"domain": "banking", "goals": ["x"]})

    def environment(self, env_id: str, draft_id: str, *, round_index: int = 0) -> Environment:
        return Environment(env_id, self.program(draft_id), round_index, slot=0, draft_id=draft_id, max_turns=6, hint="Look.")

    def step(self, number: int, *, mean: float = 0.4) -> Step:
        """Step ``number``: one environment and a refused draft of its own, four plays (one void), a regret, metrics."""
        env, draft = f"e{number}", f"d{number}"
        return Step(
            number,
            plays=[
                self.play(f"p{number}-0", env), self.play(f"p{number}-1", env, won=False),
                self.play(f"p{number}-2", env, arm=Arm.HINTED), self.play(f"p{number}-3", env, won=False, void=True),
            ],
            drafts=[
                self.draft(draft, reward=0.5, round_index=number - 1),
                self.draft(f"{draft}-bad", refused=True, round_index=number - 1),
            ],
            environments=[self.environment(env, draft, round_index=number - 1)],
            regrets={env: Regret(mean, 0.1, 4, 0.8, 0.4)},
            metrics={"loss": number / 10, "agent/success": 0.5},
        )  # fmt: skip


def fill(folder: Path) -> None:
    """Write a small learner's files."""
    (folder / "learner").mkdir()
    (folder / "weights.bin").write_bytes(bytes(range(256)) * 8)
    (folder / "learner" / "state.json").write_text("{}")


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def fill_checkpoint() -> Callable[[Path], None]:
    return fill


CONFIG: dict[str, Any] = {
    "run": {"name": "tooluse", "seed": 7, "steps": 3}, "evaluation": {"name": "heldout", "every": 0},
}  # fmt: skip


@pytest.fixture
def config() -> dict[str, Any]:
    return {**CONFIG, "run": dict(CONFIG["run"])}


@dataclass
class Recorded:
    """A running recorder and what it printed."""

    recorder: RunRecorder
    out: io.StringIO
    make: Make
    run_dir: Path

    def commit(self, number: int) -> Step:
        step = self.make.step(number)
        self.recorder.commit(step, {"at": number}, fill)
        return step


@pytest.fixture
def recording(tmp_path: Path, make: Make, config: dict[str, Any]) -> Iterator[Callable[..., Recorded]]:
    """Begin (or resume) the run in ``tmp_path/tooluse-1``; whatever is still open is closed at the end."""
    opened: list[Recorded] = []

    def begin(*, resume: bool = False, **options: Any) -> Recorded:
        out, run_dir = io.StringIO(), tmp_path / "tooluse-1"
        recorder = RunRecorder.begin(run_dir, config, resume=resume, view=PlainView(out), **options)
        opened.append(Recorded(recorder, out, make, run_dir))
        return opened[-1]

    yield begin
    for item in opened:
        item.recorder._cleanup.close()


def heldout(sampled: float, greedy: float, hinted: float = 0.9, instances: int = 40) -> dict[str, Any]:
    """What the evaluator answers, for rates that are multiples of 1 / ``instances``."""
    result: dict[str, Any] = {}
    for rate, value in (("sampled", sampled), ("greedy", greedy), ("hinted", hinted)):
        result |= {f"heldout/{rate}": value, f"heldout/{rate}_low": value - 0.05, f"heldout/{rate}_high": value + 0.05}
        wins = round(value * instances)
        result[f"instances/{rate}"] = {f"w{i}:1": [int(i < wins), 1] for i in range(instances)}
    return result


@pytest.fixture
def evaluation() -> Callable[..., dict[str, Any]]:
    return heldout
