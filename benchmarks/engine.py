"""Tokens per second of the embedded engine against ``transformers.generate``, on the same model and the same plays.

    python benchmarks/engine.py [--plays 64] [--turns 3] [--threads 2] [--repeats 3] [--model DIR] [--json FILE]

The plays are those of a training step: groups of plays share a prompt, all groups share its first part (a domain's tools),
and a later turn extends the earlier ones by an observation. The engine is measured from outside, as a run uses it: its own
process, HTTP, the policy client, log-probabilities of every token; once with plays that go on as they can, once in lockstep
waves (deterministic runs). ``transformers.generate`` gets one left-padded batch of all plays a turn, samples at the same
temperature and computes no log-probabilities. Each sampled token counts once, padding never. The two take turns, so that
what else the machine does falls on both. Prints a table and writes JSON with the machine it ran on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM, StoppingCriteria, StoppingCriteriaList
from transformers.utils import logging as transformers_logging

from spade_agentic import ConfigError, EmbeddedEngine, EmbeddedOptions, Sampling, resolve_model


@dataclass(frozen=True)
class Workload:
    """``prompts[i]`` opens play ``i``; ``limits[i][t]`` bounds its turn ``t``, after which ``observations[i][t]`` follows."""

    prompts: list[list[int]]
    limits: list[list[int]]
    observations: list[list[list[int]]]

    @property
    def turns(self) -> int:
        return len(self.limits[0])


def draw_workload(vocabulary: int, *, plays: int, turns: int, group: int, seed: int = 0) -> Workload:
    """Prompts of 400 to 700 tokens (300 in common), 20 to 60 sampled tokens a turn, observations of 30 to 80 tokens."""
    draw = np.random.default_rng(seed)

    def tokens(low: int, high: int) -> list[int]:
        return [int(t) for t in draw.integers(16, vocabulary, int(draw.integers(low, high + 1)))]

    shared = tokens(300, 300)
    heads = [shared + tokens(100, 400) for _ in range(-(-plays // group))]
    return Workload(
        [heads[i // group] for i in range(plays)],
        [[int(n) for n in draw.integers(20, 61, turns)] for _ in range(plays)],
        [[tokens(30, 80) for _ in range(turns)] for _ in range(plays)],
    )


# -- the engine --------------------------------------------------------------------------------------------------------


async def play_engine(engine: EmbeddedEngine, work: Workload, *, waves: bool, name: str) -> int:
    """All plays; returns how many tokens were sampled."""

    async def turn(play: int, number: int, context: list[int]) -> list[int]:
        done = await engine.complete(
            context, Sampling(max_tokens=work.limits[play][number]), seed=1000 * play + number,
            request_id=f"{name}-p{play:03d}_t{number}", stop_token_ids=[],
            wave=(f"{name}-w{number}", len(work.prompts)) if waves else None,
        )
        return list(done.token_ids)

    async def whole(play: int) -> int:
        context, sampled = list(work.prompts[play]), 0
        for number in range(work.turns):
            said = await turn(play, number, context)
            sampled += len(said)
            context += said + work.observations[play][number]
        return sampled

    return sum(await asyncio.gather(*(whole(play) for play in range(len(work.prompts)))))


# -- transformers ------------------------------------------------------------------------------------------------------


class _Limits(StoppingCriteria):
    """Ends each row after its own number of new tokens."""

    def __init__(self, prompt_length: int, limits: list[int]) -> None:
        self._ends = torch.tensor(limits) + prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        return input_ids.shape[1] >= self._ends


def play_transformers(model: Any, work: Workload) -> int:
    """All plays, one left-padded batch a turn; returns how many tokens were sampled."""
    contexts, sampled = [list(p) for p in work.prompts], 0
    ends = model.generation_config.eos_token_id
    eos = set(ends if isinstance(ends, list) else [ends])
    for number in range(work.turns):
        width = max(map(len, contexts))
        ids = torch.zeros(len(contexts), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, context in enumerate(contexts):
            ids[row, width - len(context) :] = torch.tensor(context)
            mask[row, width - len(context) :] = 1
        limits = [work.limits[play][number] for play in range(len(contexts))]
        out = model.generate(
            ids, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=max(limits),
            stopping_criteria=StoppingCriteriaList([_Limits(width, limits)]), pad_token_id=0,
        )
        for play, row in enumerate(out[:, width:].tolist()):
            said = row[: limits[play]]
            stop = next((i + 1 for i, token in enumerate(said) if token in eos), len(said))
            sampled += stop
            contexts[play] += said[:stop] + work.observations[play][number]
    return sampled


# -- the measurement ---------------------------------------------------------------------------------------------------


def find_model(given: Path | None, scratch: Path) -> tuple[Path, str]:
    """The folder to measure, and what it is: what was given, else spade-tiny, else a random model of its shape."""
    if given is not None:
        return given, str(given)
    try:
        return resolve_model("spade-tiny"), "spade-tiny"
    except ConfigError:
        torch.manual_seed(0)
        config = Qwen3Config(
            vocab_size=2048, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=2048, tie_word_embeddings=True, eos_token_id=2,
            pad_token_id=0, bos_token_id=None,
        )
        Qwen3ForCausalLM(config).save_pretrained(scratch)
        return scratch, "random weights, spade-tiny's shape"


async def measure(folder: Path, work: Workload, *, threads: int, repeats: int, log: Path) -> dict[str, list[tuple[int, float]]]:
    """``(tokens, seconds)`` of every repeat, by what was measured. The first round of each warms up and does not count."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    engine = EmbeddedEngine(EmbeddedOptions(threads=threads, max_batch=len(work.prompts)), log_file=log)
    await engine.start(folder)
    results: dict[str, list[tuple[int, float]]] = {"engine": [], "engine, waves": [], "transformers.generate": []}
    try:
        for repeat in range(repeats + 1):
            for name, rounds in results.items():
                await engine.client.flush_cache()
                began = time.perf_counter()
                if name == "transformers.generate":
                    with torch.inference_mode():
                        tokens = play_transformers(model, work)
                else:
                    tokens = await play_engine(engine, work, waves="waves" in name, name=f"round{repeat}")
                if repeat:
                    rounds.append((tokens, time.perf_counter() - began))
    finally:
        await engine.stop()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plays", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--group", type=int, default=8, help="plays that share a prompt")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--json", type=Path, default=Path("engine-benchmark.json"))
    args = parser.parse_args()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder, label = find_model(args.model, Path(scratch) / "model")
        vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
        work = draw_workload(vocabulary, plays=args.plays, turns=args.turns, group=args.group)
        measured = asyncio.run(measure(folder, work, threads=args.threads, repeats=args.repeats, log=Path(scratch) / "log"))
    speeds = {name: statistics.median(tokens / seconds for tokens, seconds in rounds) for name, rounds in measured.items()}
    base = speeds["transformers.generate"]
    report = {
        "model": label, "plays": args.plays, "turns": args.turns, "group": args.group, "threads": args.threads,
        "rounds": measured, "tokens_per_second": speeds, "ratio": speeds["engine"] / base,
        "ratio_waves": speeds["engine, waves"] / base, "machine": machine(),
    }
    args.json.write_text(json.dumps(report, indent=2) + "\n")
    print(f"{args.plays} plays of {args.turns} turns, {label}, {args.threads} threads; {report['machine']['cpu']}")
    print(f"{'':24}{'tokens/s':>10}{'seconds':>10}{'ratio':>8}")
    for name, speed in speeds.items():
        seconds = statistics.median(s for _, s in measured[name])
        print(f"{name:24}{speed:>10.0f}{seconds:>10.2f}{speed / base:>8.2f}")
    print(f"written to {args.json}")


if __name__ == "__main__":
    main()
