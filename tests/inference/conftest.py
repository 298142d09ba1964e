"""Small random Qwen3 models whose logits are far from uniform, and a scheduler run inside the test's own process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from spade_agentic.inference.embedded.config import load_model_config
from spade_agentic.inference.embedded.model import Qwen3, Weights
from spade_agentic.inference.embedded.requests import GenerationRequest, Result, SamplingParams, Wave
from spade_agentic.inference.embedded.scheduler import Scheduler
from spade_agentic.inference.publishing import read_weights
from spade_agentic.testing.models import TINY_VOCABULARY, tiny_tokenizer

VOCABULARY = TINY_VOCABULARY


def write_model(folder: Path, *, seed: int = 0, **changes: Any) -> Path:
    """Grouped queries and tied embeddings unless ``changes`` say otherwise; norms are not all ones."""
    ids = tiny_tokenizer(folder)
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "tie_word_embeddings": True, "max_position_embeddings": 1024,
        "initializer_range": 0.2, "eos_token_id": ids["<|im_end|>"], "pad_token_id": ids["<|endoftext|>"],
        "bos_token_id": None, "dtype": "float32", **changes,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(Qwen3Config(**shape))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" in name:
                    parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("grouped"))


@pytest.fixture(scope="session")
def other_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same shape, other numbers."""
    return write_model(tmp_path_factory.mktemp("other"), seed=1)


@pytest.fixture(scope="session")
def untied_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untied embeddings, one key/value head per query head, another rotary base."""
    return write_model(
        tmp_path_factory.mktemp("untied"), tie_word_embeddings=False, num_key_value_heads=4,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )


class Reference:
    """The same model in transformers."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()

    def logits(self, prompt: Sequence[int], completion: Sequence[int]) -> torch.Tensor:
        """Logits that each token of ``completion`` was drawn from: ``[len(completion), vocabulary]``."""
        with torch.no_grad():
            out = self.model(torch.tensor([[*prompt, *completion]])).logits[0]
        return out[len(prompt) - 1 : -1]

    def logprobs(self, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0) -> list[float]:
        table = torch.log_softmax(self.logits(prompt, completion) / temperature, dim=-1)
        return table.gather(1, torch.tensor(completion)[:, None])[:, 0].tolist()


@pytest.fixture(scope="session")
def reference(model_dir: Path) -> Reference:
    return Reference(model_dir)


@pytest.fixture(scope="session")
def reference_of() -> type[Reference]:
    return Reference


def load_weights(folder: Path, version: str = "0") -> Weights:
    return Weights(load_model_config(folder), read_weights(folder), version)


class Bench:
    """A scheduler in this process. ``run`` submits requests and waits for all of them, in their order."""

    def __init__(self, folder: Path, *, max_batch: int = 64, pool_tokens: int = 8192) -> None:
        torch.set_num_threads(1)
        weights = load_weights(folder)
        self.scheduler = Scheduler(Qwen3(weights.config, weights, 1024), max_batch=max_batch, pool_tokens=pool_tokens)
        self.scheduler.start()
        self._serial = 0

    def submit(
        self, prompt: Sequence[int], *, rid: str | None = None, wave: tuple[str, int] | None = None, watcher: Any = None,
        **sampling: Any,
    ) -> Callable[[], Result]:
        """Queue one request; the returned function waits for its result."""
        self._serial += 1
        done, box = threading.Event(), []

        def deliver(result: Result) -> None:
            box.append(result)
            done.set()

        params = SamplingParams(**{"max_tokens": 12, "ignore_eos": True, **sampling})
        request = GenerationRequest(
            rid or f"r{self._serial}", np.asarray(prompt, np.int32), params, deliver,
            wave=Wave(*wave) if wave else None, watcher=watcher,
        )
        self.scheduler.submit(request).result(30)

        def wait() -> Result:
            assert done.wait(60), "no result within a minute"
            return box[0]

        return wait

    def run(self, requests: Sequence[dict[str, Any]]) -> list[Result]:
        return [wait() for wait in [self.submit(**r) for r in requests]]

    def one(self, prompt: Sequence[int], **keywords: Any) -> Result:
        return self.submit(prompt, **keywords)()


@pytest.fixture
def bench_of() -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def make(folder: Path, **keywords: Any) -> Bench:
        benches.append(Bench(folder, **keywords))
        return benches[-1]

    yield make
    for bench in benches:
        bench.scheduler.stop()


@pytest.fixture
def bench(model_dir: Path, bench_of: Callable[..., Bench]) -> Bench:
    return bench_of(model_dir)


@pytest.fixture(scope="session")
def weights_of() -> Callable[..., Weights]:
    return load_weights


@pytest.fixture(scope="session")
def prompts() -> list[list[int]]:
    """Ten prompts of 60 to 100 tokens: two groups that share 50 tokens, and two loners."""
    draw = np.random.default_rng(7)

    def tokens(n: int) -> list[int]:
        return [int(t) for t in draw.integers(9, VOCABULARY, n)]

    heads = [tokens(50), tokens(50)]
    return [heads[i % 2] + tokens(10 + 4 * i) for i in range(8)] + [tokens(60), tokens(100)]
