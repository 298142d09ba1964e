"""What the engine around the model can do: plays per second with a policy that answers at once.

    python benchmarks/controller.py [--steps 8] [--environments 12] [--sandbox auto] [--model spade-tiny] [--json FILE]

A whole run as ``spade-agentic train`` makes it - rendering, scheduler, sandbox, gates, advantages, audit, store, trackers,
checkpoints - with three parts replaced that stand for the accelerators: an engine that answers from a list of ready-made
texts, a designer that writes its programs without a model, and a learner that takes the batch and leaves the weights as they
are. A play presses a button until it says that it is done; its seed says when, so some plays win and batches are not empty.
The model's tokenizer is used as it is, its weights only copied.

Prints plays, turns and drafts per second, the seconds of every stage and the CPU seconds of this process and of the sandbox
together, and writes JSON with the machine it ran on. The file is the plugin of its own run, too.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from machine import machine

from spade_agentic import (
    Completion,
    Draft,
    Factory,
    FinishReason,
    PluginManager,
    Program,
    Sampling,
    TrainSequence,
    hookimpl,
)
from spade_agentic.cli.logs import configure_logs
from spade_agentic.config.load import load_config, resolve_model
from spade_agentic.runs.reader import StoreReader
from spade_agentic.selfplay.build import run_training

BUTTON = 5071
PRESS = f'<tool_call>\n{{"name": "press", "arguments": {{"button": {BUTTON}}}}}\n</tool_call>'
DONE = "done"
PRESSES = (1, 2, 3, 4)
"""How often a world wants its button pressed, which nobody presses by chance."""
DONE_SHARE = 0.4
"""Of the turns. A policy that stops at random wins about three plays in ten."""
LOGPROB = -0.7

SOURCE = '''
from spade_agentic import Instruction, ToolCall, ToolEnv, tool


class Button{number}(ToolEnv):
    """A button that counts."""

    max_turns = 8

    def setup(self, rng):
        self.pressed, self.wanted, order = 0, rng.choice({presses}), rng.randint(1, 10**6)
        text = f"Order {{order}}: press button {button} {{self.wanted}} times, then say that you are done."
        call = ToolCall("press", {{"button": {button}}})
        return [Instruction(text, lambda: self.pressed == self.wanted, [call] * self.wanted)]

    @tool
    def press(self, button: int) -> str:
        """Press a button once."""
        self.pressed += button == {button}
        return f"pressed {{self.pressed}} times"
'''


# --- the three parts ------------------------------------------------------------------------------------------------------


class InstantEngine:
    """Answers before anybody could wait for it."""

    base_url = ""

    def __init__(self) -> None:
        self.version = 0
        self._answers: dict[str, tuple[int, ...]] = {}

    async def start(self, model_dir: Path) -> None:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(model_dir)
        self._answers = {text: tuple(tokenizer.encode(text, add_special_tokens=False)) for text in (PRESS, DONE)}

    async def complete(
        self, token_ids: Sequence[int], sampling: Sampling, *, seed: int, request_id: str, stop_token_ids: Sequence[int],
        wave: tuple[str, int] | None = None,
    ) -> Completion:
        said = DONE if random.Random(seed).random() < DONE_SHARE else PRESS
        ids = (*self._answers[said], stop_token_ids[0])
        return Completion(
            ids, (LOGPROB,) * len(ids), (self.version,) * len(ids), FinishReason.STOP, prompt_tokens=len(token_ids)
        )

    async def publish(self, weights_dir: Path, version: int) -> None:
        self.version = version

    async def stop(self) -> None:
        """Nothing was started."""


class Buttons:
    """A designer whose programs differ in their class's name alone."""

    async def design(self, request: Any, policy: Any) -> Draft:
        source = SOURCE.format(number=request.seed % 10**9, button=BUTTON, presses=PRESSES)
        program = Program(source, request.skill, origin={"hint": "Press as often as it says."})
        return Draft(
            request.draft_id, request.skill, request.round_index, request.slot, request.attempt,
            trajectory=policy.trajectory, text=source, program=program,
        )


class FixedHint:
    async def write(self, program: Program, policy: Any, *, seed: int) -> str | None:
        return str(program.origin["hint"])


class NoLearner:
    """Takes every batch and learns nothing; its checkpoints are whole all the same."""

    def __init__(self, model_dir: Path) -> None:
        self._model_dir = model_dir

    def step(self, batch: Sequence[TrainSequence]) -> dict[str, float]:
        return {"sequences": float(len(batch)), "tokens": float(sum(len(s.token_ids) for s in batch))}

    def save_weights(self, folder: Path) -> None:
        shutil.copytree(self._model_dir, folder, dirs_exist_ok=True)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, folder: Path) -> None:
        """There is no state."""

    def close(self) -> None:
        """Nothing is held."""


class NoEvaluation:
    """The run plays nothing but its own plays."""

    async def evaluate(self, runner: Any, *, step: int) -> dict[str, Any]:
        return {"plays": 0.0}


@hookimpl
def inference_engine() -> list[Factory[Any]]:
    return [Factory("instant", lambda options, context: InstantEngine())]


@hookimpl
def env_designer() -> list[Factory[Any]]:
    return [Factory("buttons", lambda options, context: Buttons())]


@hookimpl
def hint_writer() -> list[Factory[Any]]:
    return [Factory("fixed_hint", lambda options, context: FixedHint())]


@hookimpl
def learner() -> list[Factory[Any]]:
    return [Factory("no_learner", lambda options, context: NoLearner(resolve_model(context.config.model.path)))]


@hookimpl
def evaluator() -> list[Factory[Any]]:
    return [Factory("no_evaluation", lambda options, context: NoEvaluation())]


# --- the measurement ------------------------------------------------------------------------------------------------------


def measure(arguments: argparse.Namespace, run_dir: Path) -> dict[str, Any]:
    """One run, and what its store says of it. The seconds of a stage are those of its metrics ``time/<stage>_s``."""
    sets = [
        f"run.steps={arguments.steps}", f"model.path={arguments.model}", f"sandbox={arguments.sandbox}",
        "engine={name: instant, options: {}}", "learner={name: no_learner, options: {}}", "selfplay.designer=buttons",
        "selfplay.hint_writer=fixed_hint", "evaluation={name: no_evaluation, options: {}}",
        f"selfplay.environments={arguments.environments}",
    ]
    config = load_config("tooluse.yaml", sets, [__file__])
    manager = PluginManager.load(config.plugins)
    cpu_before_s, start = _cpu_s(), time.perf_counter()
    run_training(config, run_dir=run_dir, resume=False, manager=manager)
    wall_s, cpu_s = time.perf_counter() - start, _cpu_s() - cpu_before_s
    with StoreReader(run_dir) as reader:
        plays, drafts = list(reader.plays()), sum(1 for _ in reader.drafts())
        rows = reader.metrics()
    stages: dict[str, float] = {}
    for row in rows:
        for name, seconds in row.metrics.items():
            if name.startswith("time/"):
                stage = name.removeprefix("time/").removesuffix("_s")
                stages[stage] = stages.get(stage, 0.0) + seconds
    return {
        "wall_s": wall_s, "cpu_s": cpu_s, "stages_s": stages, "plays": len(plays), "drafts": drafts,
        "won": sum(row.play.won for row in plays), "void": sum(row.play.void for row in plays),
        "plays_per_s": len(plays) / stages["playing"], "drafts_per_s": drafts / stages["designing"],
        "plays_per_s_of_the_run": len(plays) / wall_s, "cpu_ms_per_play": 1000 * cpu_s / len(plays),
    }


def _cpu_s() -> float:
    """CPU seconds of this process and of those that it has waited for: the sandbox's workers, once they are gone."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--environments", type=int, default=12)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--model", default="spade-tiny", help="folder or name of the model whose tokenizer is used")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/controller.json"))
    arguments = parser.parse_args()
    configure_logs(debug=False)
    with tempfile.TemporaryDirectory() as folder:
        result = measure(arguments, Path(folder) / "run")
    print(f"{result['plays']} plays ({result['won']} won, {result['void']} void), {result['drafts']} drafts, "
          f"{result['wall_s']:.1f} s, {result['cpu_s']:.1f} CPU s")
    print(f"{result['plays_per_s']:.0f} plays/s while playing, {result['plays_per_s_of_the_run']:.0f} over the whole run, "
          f"{result['cpu_ms_per_play']:.1f} CPU ms a play; {result['drafts_per_s']:.1f} drafts/s while designing")
    print("seconds by stage: " + ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in result["stages_s"].items()))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    described = {"machine": machine(), "arguments": {k: str(v) for k, v in vars(arguments).items()}, **result}
    arguments.json.write_text(json.dumps(described, indent=2) + "\n")
    print(f"written to {arguments.json}")


if __name__ == "__main__":
    main()
