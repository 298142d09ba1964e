"""Contract rules of inference engines, learners and trackers. They run on a tiny random model."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from spade_agentic.hooks.records import Completion, FinishReason, Sampling

from .models import TINY_VOCABULARY, tiny_model
from .rules import Rule, Subject, flat_numbers, require
from .samples import sample_sequences

__all__ = ["ENGINE", "LEARNER", "TRACKER"]

PROMPT = (10, 20, 30, 40, 50)
STOP = 2
"""The token that ends a turn (``<|im_end|>``)."""
LENGTH = 8
STALE_TOLERANCE = 0.01
"""In nats. Old keys and values under new weights move the tiny model's log-probs by ten times as much, bf16 by a tenth."""


# --- engines ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _serving(subject: Subject) -> AsyncIterator[Any]:
    engine = subject.make()
    await engine.start(tiny_model(subject.folder / "model"))
    try:
        yield engine
    finally:
        await engine.stop()


async def _complete(
    engine: Any, name: str, *, seed: int = 1, temperature: float = 1.0, stop: Sequence[int] = (STOP,)
) -> Completion:
    sampling = Sampling(temperature=temperature, max_tokens=LENGTH)
    answer: Completion = await engine.complete(PROMPT, sampling, seed=seed, request_id=name, stop_token_ids=stop)
    return answer


async def engine_completes(subject: Subject) -> None:
    """A completion has ids of the vocabulary, a log-probability and a weight version for each, and says why it ended."""
    async with _serving(subject) as engine:
        require(isinstance(engine.base_url, str), f"its base_url is {engine.base_url!r}")
        for seed in range(4):
            answer = await _complete(engine, f"r{seed}", seed=seed)
            require(isinstance(answer, Completion), f"it returned {type(answer).__name__}")
            require(1 <= len(answer.token_ids) <= LENGTH, f"it has {len(answer.token_ids)} tokens of at most {LENGTH}")
            require(all(0 <= token < TINY_VOCABULARY for token in answer.token_ids), f"ids {answer.token_ids}")
            require(all(math.isfinite(p) and p <= 1e-6 for p in answer.logprobs), f"log-probs {answer.logprobs}")
            stopped = STOP in answer.token_ids
            expected = FinishReason.STOP if stopped else FinishReason.LENGTH
            require(answer.finish_reason is expected, f"it ended by {answer.finish_reason.value} with ids {answer.token_ids}")
            require(not stopped or answer.token_ids.index(STOP) == len(answer.token_ids) - 1, "it went on after the stop token")


async def engine_is_keyed_by_seed(subject: Subject) -> None:
    """The same seed draws the same tokens, another seed other ones; at temperature 0 the seed does not matter."""
    async with _serving(subject) as engine:
        drawn = [(await _complete(engine, f"a{n}", seed=n % 4)).token_ids for n in range(8)]
        require(drawn[:4] == drawn[4:], "the same seed drew other tokens")
        require(len(set(drawn)) > 1, "four seeds drew the same tokens")
        greedy = {(await _complete(engine, f"g{seed}", seed=seed, temperature=0.0)).token_ids for seed in range(3)}
        require(len(greedy) == 1, f"greedy completions differ: {greedy}")


async def engine_stops_where_told(subject: Subject) -> None:
    """A stop token ends a completion and is its last token."""
    async with _serving(subject) as engine:
        free = await _complete(engine, "free", temperature=0.0, stop=())
        stop = free.token_ids[len(free.token_ids) // 2]
        cut = await _complete(engine, "cut", temperature=0.0, stop=(stop,))
        first = free.token_ids.index(stop)
        expected = free.token_ids[: first + 1]
        require(cut.token_ids == expected, f"without a stop token {free.token_ids}, with {stop} {cut.token_ids}")
        require(cut.finish_reason is FinishReason.STOP, f"it ended by {cut.finish_reason.value}")


async def engine_serves_new_weights(subject: Subject) -> None:
    """After a publish, completions come from the new weights and say their version."""
    async with _serving(subject) as engine:
        before = await _complete(engine, "before", temperature=0.0, stop=())
        await engine.publish(tiny_model(subject.folder / "next", seed=1), 1)
        after = await _complete(engine, "after", temperature=0.0, stop=())
        require(set(after.versions) == {1}, f"after the publish of version 1 tokens are of {sorted(set(after.versions))}")
        require(set(before.versions) == {0}, f"before the publish tokens are of {sorted(set(before.versions))}")
        changed = before.token_ids != after.token_ids or before.logprobs != after.logprobs
        require(changed, "other weights give the same log-probs")


async def engine_forgets_what_old_weights_computed(subject: Subject) -> None:
    """After a publish, log-probs are those of an engine that began with these weights: older keys and values are gone."""
    weights = tiny_model(subject.folder / "next", seed=1)
    prompts = [tuple((17 * i + 31 * number) % 250 for i in range(40)) for number in range(6)]
    async with _serving(subject) as engine:
        await _continued(engine, prompts, "warm")
        await engine.publish(weights, 1)
        published = await _continued(engine, prompts, "after")
    fresh = subject.make()
    await fresh.start(weights)
    try:
        expected = await _continued(fresh, prompts, "fresh")
    finally:
        await fresh.stop()
    gaps = [
        abs(ours - theirs)
        for mine, other in zip(published, expected, strict=True)
        for ours, theirs in _while_equal(mine, other)
    ]
    require(len(gaps) >= len(prompts) // 2, "from the second token on they say something else")
    require(max(gaps) <= STALE_TOLERANCE, f"log-probs differ by up to {max(gaps):.3f} from those of a fresh engine")


async def _continued(engine: Any, prompts: Sequence[Sequence[int]], name: str) -> list[Completion]:
    sampling = Sampling(max_tokens=LENGTH)
    return [
        await engine.complete(prompt, sampling, seed=number, request_id=f"{name}-{number}", stop_token_ids=())
        for number, prompt in enumerate(prompts)
    ]


def _while_equal(mine: Completion, other: Completion) -> list[tuple[float, float]]:
    """Both log-probs of the tokens up to the first that differs: a draw may fall to its neighbour by rounding."""
    pairs = []
    for i, (a, b) in enumerate(zip(mine.token_ids, other.token_ids, strict=False)):
        if a != b:
            break
        pairs.append((mine.logprobs[i], other.logprobs[i]))
    return pairs


ENGINE: tuple[Rule, ...] = (
    engine_completes, engine_is_keyed_by_seed, engine_stops_where_told, engine_serves_new_weights,
    engine_forgets_what_old_weights_computed,
)  # fmt: skip


# --- learners --------------------------------------------------------------------------------------------------------


def _weights(learner: Any, folder: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    learner.save_weights(folder)
    written = sorted(path.name for path in folder.iterdir())
    require("config.json" in written, f"save_weights wrote no config.json, but {written}")
    files = sorted(folder.glob("*.safetensors"))
    require(bool(files), "save_weights wrote no safetensors file")
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def _same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all((first[name] == second[name]).all() for name in first)


async def learner_learns(subject: Subject) -> None:
    """A step changes the weights and answers with flat, finite metrics."""
    learner = subject.make()
    before = _weights(learner, subject.folder / "before")
    metrics = learner.step(sample_sequences())
    wrong = flat_numbers(metrics)
    require(not wrong, "metrics: " + "; ".join(wrong[:5]))
    require(not _same(before, _weights(learner, subject.folder / "after")), "the weights are the same as before")
    learner.close()


async def learner_exports_a_model(subject: Subject) -> None:
    """What save_weights writes is a model folder that an engine can load."""
    from spade_agentic.inference.embedded.config import load_model_config
    from spade_agentic.inference.embedded.model import Weights

    learner = subject.make()
    tensors = _weights(learner, subject.folder / "weights")
    Weights(load_model_config(subject.folder / "weights"), tensors, version="0")  # refuses what is missing or misshapen
    learner.close()


async def learner_resumes(subject: Subject) -> None:
    """A learner that is loaded from what another saved goes on exactly as that one does."""
    first = subject.make()
    first.step(sample_sequences(4))
    first.save(subject.folder / "state")
    second = subject.make()
    second.load(subject.folder / "state")
    for learner in (first, second):
        learner.step(sample_sequences(6))
    ours, theirs = _weights(first, subject.folder / "first"), _weights(second, subject.folder / "second")
    different = [name for name in ours if name not in theirs or not (ours[name] == theirs[name]).all()]
    require(not different, f"{len(different)} of {len(ours)} tensors differ, first {different[:1]}")
    first.close()
    second.close()


async def learner_follows_the_advantage(subject: Subject) -> None:
    """Only the advantage gives a direction: where all are 0, no token is made likelier than by any other such batch."""
    batch = [replace(sequence, advantage=0.0) for sequence in sample_sequences()]
    other = [replace(sequence, token_ids=(*sequence.token_ids[:8], *reversed(sequence.token_ids[8:]))) for sequence in batch]
    weights = []
    for index, sequences in enumerate((batch, other)):
        learner = subject.make()
        learner.step(sequences)
        weights.append(_weights(learner, subject.folder / f"w{index}"))
        learner.close()
    require(_same(*weights), "two batches without advantages give different weights")


async def learner_trains_what_the_mask_says(subject: Subject) -> None:
    """The last masked token matters, and the one behind it does not: a mask that is read one off shows at either end."""
    first = sample_sequences(1)[0]
    end = len(first.mask) - 3
    masked = replace(first, mask=tuple(on and i < end for i, on in enumerate(first.mask)))
    changed = {"the same": None, "behind the last masked token": end, "the last masked token": end - 1}
    weights = {}
    for index, (what, place) in enumerate(changed.items()):
        ids = tuple((token + 100) % 250 if i == place else token for i, token in enumerate(masked.token_ids))
        learner = subject.make()
        learner.step([replace(masked, token_ids=ids)])
        weights[what] = _weights(learner, subject.folder / f"m{index}")
        learner.close()
    same, behind, last = weights.values()
    require(_same(same, behind), "the token behind the last masked one changes what is learned")
    require(not _same(same, last), "the last masked token changes nothing")


LEARNER: tuple[Rule, ...] = (
    learner_learns, learner_exports_a_model, learner_resumes, learner_follows_the_advantage, learner_trains_what_the_mask_says,
)  # fmt: skip


# --- trackers --------------------------------------------------------------------------------------------------------


async def tracker_takes_metrics(subject: Subject) -> None:
    """It takes metrics of growing steps, no metrics at all, and numbers that are not finite; then it can be closed."""
    tracker = subject.make()
    tracker.log(0, {"success": 0.5, "plays": 12})
    tracker.log(1, {})
    tracker.log(2, {"regret": float("nan"), "loss": float("inf"), "a/b/c": -1.0})
    tracker.close()


async def tracker_can_be_continued(subject: Subject) -> None:
    """A second tracker in the same run directory (a resumed run) is no error."""
    for steps in ((0, 1), (1, 2)):
        tracker = subject.make()
        for step in steps:
            tracker.log(step, {"success": 0.5})
        tracker.close()


async def tracker_does_not_keep_the_metrics(subject: Subject) -> None:
    """It leaves the mapping that it was given as it was."""
    tracker = subject.make()
    metrics = {"success": 0.5}
    tracker.log(0, metrics)
    require(metrics == {"success": 0.5}, f"it became {metrics}")
    tracker.close()


TRACKER: tuple[Rule, ...] = (tracker_takes_metrics, tracker_can_be_continued, tracker_does_not_keep_the_metrics)
