"""The toy game as a third party's plugin: designer, hints, sandbox, engine, learner, evaluator and tracker.

Engine and learner share one folder of weights like the real ones: what the engine's agent can do is what the weights that were
published say. ``LOG`` lists the calls of all parts in their order.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from play_fakes import (
    CallingHints,
    DoorDesigner,
    InProcessSandbox,
    ScriptedEngine,
    ToyLearner,
    any_door,
    door,
    game_policy,
)
from pydantic import Field

from spade_agentic import Arm, Factory, Options, hookimpl
from spade_agentic.rollout.rendering import build_rendering

LOG: list[str] = []
FAIL_AT: list[str] = []
"""Names of calls that raise."""


def log(call: str) -> None:
    LOG.append(call)
    if call in FAIL_AT:
        raise RuntimeError(f"{call} broke")


class LoggedSandbox(InProcessSandbox):
    async def start(self) -> None:
        log("sandbox.start")
        await super().start()

    async def stop(self) -> None:
        LOG.append("sandbox.stop")
        await super().stop()


class LoggedEngine(ScriptedEngine):
    weight: float = 0.5

    def __init__(self, model_dir: Path) -> None:
        super().__init__(
            build_rendering(model_dir, {"name": "qwen3"}).tokenizer, game_policy(any_door, lambda level: self.weight)
        )

    async def start(self, model_dir: Path) -> None:
        log("engine.start")

    async def publish(self, weights_dir: Path, version: int) -> None:
        log(f"engine.publish {version}")
        self.weight = 0.5 + json.loads((weights_dir / "toy.json").read_text())["weight"]
        await super().publish(weights_dir, version)

    async def stop(self) -> None:
        LOG.append("engine.stop")


class LoggedLearner(ToyLearner):
    def step(self, batch: Any) -> dict[str, float]:
        log(f"learner.step {len(self.batches)}")
        return super().step(batch)

    def save(self, folder: Path) -> None:
        log("learner.save")
        super().save(folder)

    def load(self, folder: Path) -> None:
        log("learner.load")
        super().load(folder)

    def close(self) -> None:
        LOG.append("learner.close")


class DoorEvaluator:
    """Success on four doors that are never trained on."""

    async def evaluate(self, runner: Any, *, step: int) -> dict[str, Any]:
        log(f"evaluate {step}")
        instances = [(door(10**7 + i), 10**6 + i) for i in range(4)]
        plays = await runner.play(instances, 2, Arm.PLAIN, runner.sampling, purpose="doors")
        rate = sum(p.won for p in plays) / len(plays)
        return {"doors/sampled": rate, "doors/sampled_low": rate, "doors/sampled_high": rate}


class LoggedTracker:
    def log(self, step: int, metrics: Any) -> None:
        log(f"tracker.log {step}")

    def close(self) -> None:
        LOG.append("tracker.close")


class EngineOptions(Options):
    model: str = Field(description="Folder of the tokenizer.")


@hookimpl
def env_designer() -> list[Factory[Any]]:
    return [Factory("door", lambda options, context: DoorDesigner())]


@hookimpl
def hint_writer() -> list[Factory[Any]]:
    return [Factory("calling", lambda options, context: CallingHints())]


@hookimpl
def sandbox() -> list[Factory[Any]]:
    return [Factory("inprocess", lambda options, context: LoggedSandbox())]


@hookimpl
def inference_engine() -> list[Factory[Any]]:
    return [Factory("scripted", lambda options, context: LoggedEngine(Path(options.model)), EngineOptions)]


@hookimpl
def learner() -> list[Factory[Any]]:
    return [Factory("toy", lambda options, context: LoggedLearner())]


@hookimpl
def evaluator() -> list[Factory[Any]]:
    return [Factory("doors", lambda options, context: DoorEvaluator())]


@hookimpl
def tracker() -> list[Factory[Any]]:
    return [Factory("logged", lambda options, context: LoggedTracker())]


@hookimpl
def run_started(run_id: str) -> None:
    LOG.append("run_started")


@hookimpl
def run_ended(status: str) -> None:
    LOG.append(f"run_ended {status}")
