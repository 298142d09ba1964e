"""A small run in a real store, with everything in it that a report shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spade_agentic.hooks.records import (
    Arm,
    Draft,
    Environment,
    ParseOutcome,
    Play,
    Program,
    Refusal,
    Regret,
    Role,
    Skill,
    StopReason,
    Trajectory,
    Turn,
)
from spade_agentic.runs.store import RunStore

CONFIG: dict[str, Any] = {
    "run": {"name": "tooluse", "seed": 7, "steps": 4}, "evaluation": {"name": "heldout", "every": 0},
    "learner": {"name": "torch", "options": {"lr": 0.1}},
}  # fmt: skip


@dataclass
class World:
    """An environment to store: what it is made of, and how its pairs end, as ``(plain won, hinted won)``."""

    env_id: str
    round_index: int = 0
    skill: Skill = Skill.DATA_RETRIEVAL
    origin: dict[str, Any] = field(default_factory=lambda: {"domain": "banking", "goals": ["pay"], "mods": {"hide_id": True}})
    pairs: Sequence[tuple[bool, bool]] = ((False, True), (True, True))
    regret: float | None = 0.5
    hint: str | None = "Pay."
    said: str = "<tool_call>\n{}\n</tool_call>"
    answer: str = "ok"
    text: str = "goals: pay"
    source: str = "class World: ..."


def play(world: World, step: int, number: int, arm: Arm, won: bool, **changes: Any) -> Play:
    turns = [
        Turn(world.said, ParseOutcome.CALL, ({"name": "pay", "arguments": {"to": "Rosa", "sum": number}},), (world.answer,)),
        Turn("done" if won else "no", ParseOutcome.NO_CALL, (), ("",)),
    ]
    values: dict[str, Any] = {
        "play_id": f"t{step}-{world.env_id}-{number}-{arm.value}", "env_id": world.env_id, "seed": 100 + number, "repeat": 0,
        "arm": arm, "trajectory": Trajectory(Role.AGENT), "reward": float(won), "won": won, "stop": StopReason.ANSWERED,
        "turns": turns, "first_observation": f"Pay Rosa, {world.env_id}.",
    }  # fmt: skip
    return Play(**(values | changes))


def records_of(world: World, step: int) -> tuple[Draft, Environment, list[Play]]:
    program = Program(world.source, world.skill, origin=world.origin)
    draft = Draft(f"d-{world.env_id}", world.skill, world.round_index, 0, 0, None, world.text, program, reward=0.5)
    environment = Environment(world.env_id, program, world.round_index, 0, draft.draft_id, 6, world.hint)
    plays = [
        play(world, step, number, arm, won)
        for number, pair in enumerate(world.pairs)
        for arm, won in zip(Arm, pair, strict=True)
        if arm is Arm.PLAIN or world.hint is not None
    ]
    return draft, environment, plays


def refused(draft_id: str, gate: str, code: str, *, round_index: int = 0, detail: str = "so it is") -> Draft:
    return Draft(draft_id, Skill.DATA_RETRIEVAL, round_index, 1, 0, None, "x", None, Refusal(gate, code, detail))


@dataclass
class StepOf:
    """One step to commit."""

    worlds: Sequence[World] = ()
    refusals: Sequence[Draft] = ()
    again: Sequence[World] = ()
    """Environments of earlier steps that are played again, plain."""
    metrics: dict[str, float] = field(default_factory=dict)
    regrets: dict[str, float] = field(default_factory=dict)
    """Measured again: the first measurement of an environment is its world's ``regret``, in its own step."""


def write_run(
    folder: Path, steps: Sequence[StepOf], *, evaluations: dict[int, dict[str, Any]] | None = None,
    config: dict[str, Any] | None = None, status: str = "finished", stage_s: dict[str, float] | None = None,
) -> Path:
    """Write a run; ``evaluations`` are answers of ``heldout`` by step."""
    store = RunStore.create(folder, folder.name, config or CONFIG)
    try:
        for number, step in enumerate(steps, start=1):
            made = [records_of(world, number) for world in step.worlds]
            plays = [p for *_, mine in made for p in mine]
            plays += [play(w, number, n, Arm.PLAIN, pair[0]) for w in step.again for n, pair in enumerate(w.pairs)]
            measured = {w.env_id: w.regret for w in step.worlds if w.regret is not None} | step.regrets
            store.commit_step(
                step=number, checkpoint=store.checkpoints.write(number, lambda folder: None), state={}, plays=plays,
                drafts=[*(draft for draft, *_ in made), *step.refusals], environments=[e for _, e, _ in made],
                regrets={env: Regret(mean, 0.1, 2, 0.5 + mean / 2, 0.5 - mean / 2) for env, mean in measured.items()},
                metrics=step.metrics,
            )
        for number, result in (evaluations or {}).items():
            store.record_evaluation(step=number, name="heldout", result=result)
        store.finish(status, stage_s=stage_s)
    finally:
        store.close()
    return folder
