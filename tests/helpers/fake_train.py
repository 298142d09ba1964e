"""``spade-agentic train`` without a policy: the words of the real one, a real store, and steps that only take time.

``fake.json`` in the working folder may say ``step_s`` (seconds a step takes), ``fail`` (a run's folder that ends with an error
after its first step), ``success`` (held-out success after training, by the name of the run) and ``reserved`` (the same in
reserved domains; a run that is not named there does not measure it).
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from stored_runs import StepOf, World, records_of

from spade_agentic.config.load import load_config
from spade_agentic.runs.layout import RunDir
from spade_agentic.runs.live import PlainView
from spade_agentic.runs.recorder import RunRecorder

INSTANCES = 40
BEFORE = 0.3


def heldout(success: float, seed: int, part: str = "") -> dict[str, Any]:
    """An answer of ``heldout`` with about that success, a little different for every seed; ``part`` begins its rates."""
    wins = round(success * INSTANCES) + seed
    result: dict[str, Any] = {}
    for rate in ("sampled", "greedy", "hinted"):
        value = wins / INSTANCES
        key = f"heldout/{part}{rate}"
        result |= {key: value, f"{key}_low": value - 0.1, f"{key}_high": value + 0.1}
        order = list(range(INSTANCES))
        random.Random(seed).shuffle(order)
        result[f"instances/{part}{rate}"] = {f"w{i}:1": [int(place < wins), 1] for i, place in enumerate(order)}
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--plugin", action="append", default=[])
    args = parser.parse_args()
    order = json.loads(Path("fake.json").read_text()) if Path("fake.json").exists() else {}
    config = load_config(RunDir(args.run_dir).config if args.resume else args.name, args.set, args.plugin)
    recorder = RunRecorder.begin(args.run_dir, config.to_data(), resume=args.resume, view=PlainView(sys.stdout))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(recorder.end("interrupted") and 0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(recorder.end("interrupted") and 0))
    first = 1 if recorder.resumed_from is None else recorder.resumed_from.step + 1
    reserved = order.get("reserved", {}).get(config.run.name)

    def measure(step: int, success: float, apart: float) -> None:
        more = {} if reserved is None else heldout(apart, config.run.seed, "reserved/")
        recorder.record_evaluation(step=step, name="heldout", result=heldout(success, config.run.seed) | more)

    if not recorder.has_evaluation(step=0, name="heldout"):
        measure(0, BEFORE, BEFORE / 2)
    for number in range(first, config.run.steps + 1):
        time.sleep(order.get("step_s", 0.0))
        step = StepOf(worlds=[World(f"r{number}s0", number - 1, regret=0.5 / number)])
        draft, environment, plays = records_of(step.worlds[0], number)
        recorder.commit(Step(number, plays, [draft], [environment]), {}, lambda folder: None)
        if order.get("fail") == args.run_dir.name:
            recorder.end("failed")
            sys.exit("this one fails")
    measure(config.run.steps, order.get("success", {}).get(config.run.name, 0.8), reserved or 0.0)
    recorder.end("finished")


class Step:
    """What a commit takes."""

    def __init__(self, number: int, plays: Any, drafts: Any, environments: Any) -> None:
        self.step, self.plays, self.drafts, self.environments, self.regrets = number, plays, drafts, environments, {}
        self.metrics = {"regret/mean": 0.5 / number, "regret/stderr": 0.1, "interval/with_regret": 4.0}


if __name__ == "__main__":
    main()
