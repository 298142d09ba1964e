"""Speed of one update of the torch learner on a tiny policy: shared prefixes, plain packing, and padded rows; each against the
bare forward and backward pass of the same micro-batches.

    python benchmarks/learner.py [--plays 256] [--group 8] [--threads 2] [--repeats 3] [--json FILE]

The policy is a randomly initialised Qwen3 (hidden 128, 4 layers, vocabulary 2048); the batch is drawn to look like one
step of ``tooluse.yaml``: groups that share a prompt (a domain's system part, then the instance), two to four turns, each a
few sampled tokens and an observation. The bare pass computes the same rows with the same kernels and a plain cross-entropy
of the sampled tokens: no packing, checks, importance weights, audit, clipping or optimizer. Updates and bare passes take turns,
so that what else the machine does falls on both. Prints a table and writes JSON with the machine it ran on; CPU seconds (of
all threads) are what to compare where other work runs beside.
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from machine import machine
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

from spade_agentic import Role, TorchLearner, TorchOptions, TrainSequence
from spade_agentic.learning.batches import MicroBatch, pack, pad

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


def micro_batches(batch: list[TrainSequence], options: TorchOptions) -> list[MicroBatch]:
    """The rows that the learner computes for ``batch``, where it is one minibatch."""
    if options.attention == "packed":
        return pack(batch, options.token_budget, share=options.prefix_sharing)
    return pad(batch, options.token_budget)


def bare_pass(learner: TorchLearner, rows: list[MicroBatch]) -> None:
    """Forward and backward of the model alone, over ``rows``; the last MLP only where the learner computes it too."""
    model = learner.policy.model
    for row in rows:
        extra = {}
        if row.layout is not None:
            extra = {"tree_layout": row.layout, "position_ids": row.position_ids, "sources": row.source.unique()}
        hidden = model.get_decoder()(input_ids=row.token_ids, use_cache=False, **extra).last_hidden_state
        logits = model.get_output_embeddings()(hidden.flatten(0, 1).index_select(0, row.source))
        torch.nn.functional.cross_entropy(logits, row.target).backward()
    model.zero_grad(set_to_none=True)


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall seconds, CPU seconds of all threads, and the result."""
    started, cpu_started = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - started, time.process_time() - cpu_started, result


def measure(model: Path, batch: list[TrainSequence], variant: Variant, options: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Median seconds of a step (one update unless ``options`` say otherwise), of the bare pass, and what both computed.

    ``of_bare`` is the bare pass's time by the step's: the share of the model's own speed that the learner reaches.
    """
    chosen = TorchOptions(**{**options, **variant.options})
    learner, rows = TorchLearner(model, chosen), micro_batches(batch, chosen)
    warm = batch[: max(1, len(batch) // 8)]  # first calls pay for allocation and thread start-up
    learner.step(warm)
    bare_pass(learner, micro_batches(warm, chosen))
    steps, bare = [], []
    for _ in range(repeats):
        steps.append(timed(lambda: learner.step(batch)))
        bare.append(timed(lambda: bare_pass(learner, rows)))
    metrics = steps[-1][2]
    learner.close()
    seconds = [wall for wall, _, _ in steps]
    median, bare_seconds = statistics.median(seconds), statistics.median(wall for wall, _, _ in bare)
    cpu_seconds, bare_cpu = (statistics.median(cpu for _, cpu, _ in runs) for runs in (steps, bare))
    return {
        "variant": variant.name, "seconds": median, "cpu_seconds": cpu_seconds,
        "bare_seconds": bare_seconds, "bare_cpu_seconds": bare_cpu, "bare_tokens_per_s": metrics["tokens"] / bare_seconds,
        "of_bare": bare_seconds / median, "of_bare_cpu": bare_cpu / cpu_seconds,
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
    print(f"{'variant':36}{'seconds':>9}{'CPU s':>8}{'tokens/s':>11}{'computed':>10}{'less CPU':>10}{'of bare':>9}{'(CPU)':>7}")
    for row in rows:
        print(f"{row['variant']:36}{row['seconds']:9.2f}{row['cpu_seconds']:8.2f}{row['tokens_per_s']:11.0f}"
              f"{int(row['computed_tokens']):10d}"
              f"{slowest / row['cpu_seconds']:9.1f}x{row['of_bare']:9.2f}{row['of_bare_cpu']:7.2f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the process: {peak:.0f} MB")
    args.json.parent.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine(), "arguments": {k: str(v) for k, v in vars(args).items()}, "peak_rss_mb": peak, "rows": rows}
    args.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {args.json}")


if __name__ == "__main__":
    main()
