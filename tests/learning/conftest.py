"""A small Qwen3 with grouped-query attention, and batches that look like plays."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

from spade_agentic import Role, TrainSequence

VOCABULARY = 64
MakeBatch = Callable[..., list[TrainSequence]]


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """Bit-identical results are promised for one number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers, hidden size 32, four heads on two key/value heads, vocabulary 64."""
    folder = tmp_path_factory.mktemp("learning") / "model"
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=512, tie_word_embeddings=True,
        initializer_range=0.2,
    )
    transformers_logging.disable_progress_bar()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        Qwen3ForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text('{"note": "copied as it is"}')
    return folder


def play(
    rng: random.Random, name: str, prompt: Sequence[int], role: Role = Role.AGENT, prefix_key: str | None = None,
    **changes: Any,
) -> TrainSequence:
    """A prompt, then one to three times: sampled tokens, an observation."""
    ids, mask = list(prompt), [False] * len(prompt)
    for _ in range(rng.randrange(1, 4)):
        for sampled in (True, False):
            n = rng.randrange(2, 9)
            ids += [rng.randrange(VOCABULARY) for _ in range(n)]
            mask += [sampled] * n
    values: dict[str, Any] = {
        "sequence_id": name, "role": role, "token_ids": tuple(ids), "mask": tuple(mask),
        "rollout_logprobs": tuple(-rng.uniform(2, 6) if m else 0.0 for m in mask), "advantage": rng.gauss(0, 1),
        "prefix_key": prefix_key, "prefix_len": len(prompt) if prefix_key is not None else 0,
    }  # fmt: skip
    return TrainSequence(**{**values, **changes})


@pytest.fixture
def make_batch() -> MakeBatch:
    """``make_batch(groups, size, seed=0)``: groups with a shared prompt below a shared system prompt, and two drafts."""

    def make(
        groups: int = 3, size: int = 4, *, seed: int = 0, drafts: int = 2, temperature: float = 1.0
    ) -> list[TrainSequence]:
        rng = random.Random(seed)
        system = [rng.randrange(VOCABULARY) for _ in range(24)]
        batch = []
        for g in range(groups):
            prompt = system + [rng.randrange(VOCABULARY) for _ in range(rng.randrange(18, 30))]
            batch += [play(rng, f"g{g}p{i}", prompt, prefix_key=f"g{g}", temperature=temperature) for i in range(size)]
        request = [rng.randrange(VOCABULARY) for _ in range(20)]
        batch += [play(rng, f"d{i}", request, Role.DESIGNER, weight=2.0, temperature=temperature) for i in range(drafts)]
        return batch

    return make
