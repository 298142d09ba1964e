"""``spade-agentic bootstrap``: rebuild ``spade-tiny`` from its tokenizer to its weights."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import structlog

__all__ = ["BootstrapReport", "run_bootstrap"]

_TOKENIZER_TEXTS = 4_000
_REPORT_EVERY_STEPS = 50
_SAVE_EVERY_STEPS = 100
"""The weights so far can be looked at while the rest is made, and are not lost when it is stopped."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BootstrapReport:
    """What a bootstrap made. ``loss`` is the mean of the demonstrator's tokens at the end, in nats."""

    output: Path
    seed: int
    parameters: int
    vocabulary: int
    loss: float
    megabytes: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"spade-tiny: {self.parameters:,} parameters, {self.vocabulary:,} tokens, {self.megabytes:.1f} MB, "
            f"loss {self.loss:.3f}, made in {self.seconds / 60:.1f} minutes\n{self.output}"
        )


def run_bootstrap(output: Path, *, seed: int) -> BootstrapReport:
    """Train tokenizer and model into ``output``, a folder that ``model.path`` of a run may name.

    First the mechanics are made sure, on demonstrations that decide right; then the decisions are opened, in two descents.
    The other way round does not work: as long as half of the demonstrations pick the account that was not asked for, nothing
    teaches the model to look at what was asked for. The same seed on the same machine gives the same files.
    """
    import torch

    from spade_agentic.rollout.rendering import build_rendering

    from .corpus import Mixture, phrases, stream, texts
    from .tokenizer import capitalised, train_tokenizer
    from .warmstart import DECISIONS, DECISIONS_AGAIN, MECHANICS, TinyShape, liken, make_model, train

    start = time.monotonic()
    mixture = Mixture()
    drawn = texts(seed, mixture, _TOKENIZER_TEXTS)
    train_tokenizer(drawn, output, vocab_size=VOCABULARY_LIMIT, phrases=phrases(mixture))
    rendering = build_rendering(output, {"name": "qwen3"})
    tokenizer = rendering.tokenizer
    log.info("bootstrap_tokenizer", tokens=len(tokenizer), seconds=round(time.monotonic() - start))
    torch.manual_seed(seed)
    shape = TinyShape()
    model = make_model(shape, len(tokenizer), eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    liken(model, capitalised(tokenizer.get_vocab()))

    stages = {
        "mechanics": (MECHANICS, replace(mixture, open_decisions=False)),
        "decisions": (DECISIONS, mixture),
        "decisions_again": (DECISIONS_AGAIN, replace(mixture, blueprints=MORE_BLUEPRINTS)),
    }
    for index, (stage, (schedule, shown)) in enumerate(stages.items()):

        def report(step: int, metrics: dict[str, float], stage: str = stage, of: int = schedule.steps) -> None:
            if step % _REPORT_EVERY_STEPS == 0 or step == of:
                log.info("bootstrap_step", stage=stage, step=step, of=of, **{k: round(v, 3) for k, v in metrics.items()})
            if step % _SAVE_EVERY_STEPS == 0:
                model.save_pretrained(output)

        loss = train(model, stream(seed + 1 + index, rendering, shown), schedule, seed=seed + index, report=report)
    model.save_pretrained(output)
    schedules = {stage: asdict(schedule) for stage, (schedule, _) in stages.items()}
    recipe = {"seed": seed, "mixture": asdict(mixture), "shape": asdict(shape), "schedules": schedules, "loss": loss}
    (output / "bootstrap.json").write_text(json.dumps(recipe, indent=2) + "\n")
    return BootstrapReport(
        output, seed, sum(p.numel() for p in model.parameters()), len(tokenizer), loss,
        (output / "model.safetensors").stat().st_size / 1e6, time.monotonic() - start,
    )


MORE_BLUEPRINTS = 0.3
"""The last stage reads more blueprints than the others: with four domains to choose from, a designer that has read the usual
share leaves three in ten of them malformed."""
VOCABULARY_LIMIT = 4_096
"""The corpus has fewer different pieces than this, so that every word of it becomes one token."""
