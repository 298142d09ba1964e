"""Speed of one update of the torch learner on a tiny policy: shared prefixes, plain packing, and padded rows.

    python benchmarks/learner.py [--plays 256] [--group 8] [--threads 2] [--repeats 3] [--json FILE]

The policy is a randomly initialised Qwen3 (hidden 128, 4 layers, vocabulary 2048); the batch is drawn to look like one
step of ``tooluse.yaml``: groups that share a prompt (a domain's system part, then the instance), two to four turns, each a
few sampled tokens and an observation. Prints a table and writes JSON with the machine it ran on; CPU seconds (of all
threads) are what to compare where other work runs beside.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from machine import machine
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

from spade_agentic import Role, TorchLearner, TorchOptions, TrainSequence

VOCABULARY = 2048


@dataclass(frozen=True)
class Variant:
    """One way to compute the same update."""

    name: str
    options: dict[str, Any]


VARIANTS = (
    Variant("packed, shared prefixes", {}),
    Variant("packed, nothing shared", {"prefix_sharing": False}),
    Variant("padded, the model's own attention", {"attention": "model"}),
)


def tiny_model(folder: Path, *, hidden: int, layers: int) -> Path:
    """Write a randomly initialised Qwen3 of the shape of ``spade-tiny``."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
        num_attention_heads=max(2, hidden // 32), num_key_value_heads=2, head_dim=32, max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    transformers_logging.disable_progress_bar()
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def realistic_batch(plays: int, group: int, seed: int = 0) -> list[TrainSequence]:
    """Plays of 300 to 900 tokens with 20 to 120 sampled ones; groups of ``group`` share a prompt of 250 to 500 tokens."""
    rng = random.Random(seed)

    def tokens(n: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(n)]

    domains = [tokens(rng.randrange(150, 300)) for _ in range(4)]
    batch = []
    for g in range(-(-plays // group)):
        prompt = domains[g % len(domains)] + tokens(rng.randrange(100, 200))
        for i in range(min(group, plays - g * group)):
            ids, mask = list(prompt), [False] * len(prompt)
            for turn in range(rng.randrange(2, 5)):
                if turn:
                    observation = tokens(rng.randrange(20, 110))
                    ids, mask = ids + observation, mask + [False] * len(observation)
                said = tokens(rng.randrange(10, 30))
                ids, mask = ids + said, mask + [True] * len(said)
            logprobs = tuple(-7.6 if m else 0.0 for m in mask)
            batch.append(TrainSequence(
                f"g{g}-p{i}", Role.AGENT, tuple(ids), tuple(mask), logprobs, rng.gauss(0, 1),
                prefix_key=f"g{g}", prefix_len=len(prompt),
            ))
    return batch


def measure(model: Path, batch: list[TrainSequence], variant: Variant, options: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Median seconds of a step (one update unless ``options`` say otherwise) and what it computed."""
    learner = TorchLearner(model, TorchOptions(**{**options, **variant.options}))
    learner.step(batch[: max(1, len(batch) // 8)])  # first calls pay for allocation and thread start-up
    seconds, cpu_seconds, metrics = [], [], {}
    for _ in range(repeats):
        started, cpu_started = time.perf_counter(), time.process_time()
        metrics = learner.step(batch)
        seconds.append(time.perf_counter() - started)
        cpu_seconds.append(time.process_time() - cpu_started)
    learner.close()
    median = statistics.median(seconds)
    return {
        "variant": variant.name, "seconds": median, "cpu_seconds": statistics.median(cpu_seconds),
        "tokens_per_s": metrics["tokens"] / median, "trained_tokens_per_s": metrics["trained_tokens"] / median,
        "tokens": metrics["tokens"],
        "trained_tokens": metrics["trained_tokens"], "computed_tokens": metrics["computed_tokens"],
        "updates": metrics["updates"], "all_seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plays", type=int, default=256)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--token-budget", type=int, default=TorchOptions().token_budget)
    parser.add_argument("--minibatches", type=int, default=1, help="parts of the batch, one update each")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", help="run only the variants whose name contains this")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/learner.json"))
    args = parser.parse_args()
    options = {"threads": args.threads, "token_budget": args.token_budget, "minibatches": args.minibatches, "lr": 1e-4}
    batch = realistic_batch(args.plays, args.group)
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model(Path(folder), hidden=args.hidden, layers=args.layers)
        rows = [
            measure(model, batch, variant, options, args.repeats)
            for variant in VARIANTS if not args.only or args.only in variant.name
        ]
    slowest = max(row["cpu_seconds"] for row in rows)
    print(f"{len(batch)} plays in groups of {args.group}, {int(rows[0]['tokens'])} tokens, "
          f"{int(rows[0]['trained_tokens'])} of them sampled; {args.threads} threads")
    print(f"{'variant':36}{'seconds':>9}{'CPU s':>8}{'tokens/s':>11}{'computed':>10}{'less CPU':>10}")
    for row in rows:
        print(f"{row['variant']:36}{row['seconds']:9.2f}{row['cpu_seconds']:8.2f}{row['tokens_per_s']:11.0f}"
              f"{int(row['computed_tokens']):10d}{slowest / row['cpu_seconds']:9.1f}x")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the process: {peak:.0f} MB")
    args.json.parent.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine(), "arguments": {k: str(v) for k, v in vars(args).items()}, "peak_rss_mb": peak, "rows": rows}
    args.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {args.json}")


if __name__ == "__main__":
    main()
