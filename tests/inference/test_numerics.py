"""The forward pass and the sampler against transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from spade_agentic.errors import UserError, WeightUpdateFailed
from spade_agentic.inference.embedded.config import load_model_config
from spade_agentic.inference.embedded.model import Weights
from spade_agentic.inference.embedded.sampling import SamplerInput, sample, uniform
from spade_agentic.inference.publishing import folder_checksums, read_weights

TOLERANCE = 5e-5


@pytest.mark.parametrize("kind", ["grouped", "untied"])
def test_greedy_tokens_and_logprobs_are_those_of_transformers(kind, model_dir, untied_dir, bench_of, reference_of, prompts):
    folder = model_dir if kind == "grouped" else untied_dir
    reference = reference_of(folder)
    results = bench_of(folder).run([{"prompt": p, "temperature": 0.0} for p in prompts])
    for prompt, result in zip(prompts, results, strict=True):
        assert reference.logits(prompt, result.token_ids).argmax(-1).tolist() == result.token_ids
        assert np.allclose(result.logprobs, reference.logprobs(prompt, result.token_ids), atol=TOLERANCE)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_a_sampled_tokens_logprob_is_that_of_the_tempered_distribution(temperature, bench, reference, prompts):
    results = bench.run([{"prompt": p, "temperature": temperature, "seed": i} for i, p in enumerate(prompts)])
    for prompt, result in zip(prompts, results, strict=True):
        assert np.allclose(result.logprobs, reference.logprobs(prompt, result.token_ids, temperature), atol=TOLERANCE)


def test_top_k_and_top_p_renormalise_the_distribution_that_is_sampled(bench, reference, prompts):
    result = bench.one(prompts[0], top_k=5, top_p=0.8, max_tokens=30, seed=3)
    table = torch.log_softmax(reference.logits(prompts[0], result.token_ids), dim=-1)
    for row, token, logprob in zip(table, result.token_ids, result.logprobs, strict=True):
        values, order = row.topk(5)
        share = values.softmax(0)
        kept = (share.cumsum(0) - share) <= 0.8
        assert token in order[kept].tolist()
        place = order.tolist().index(token)
        assert logprob == pytest.approx(float(torch.log(share[place] / share[kept].sum())), abs=1e-4)


def test_a_prompt_longer_than_one_pass_is_computed_right(bench, reference):
    prompt = np.random.default_rng(0).integers(9, 300, 900).tolist()
    result = bench.one(prompt, temperature=0.0, max_tokens=4)
    assert np.allclose(result.logprobs, reference.logprobs(prompt, result.token_ids), atol=TOLERANCE)
    assert reference.logits(prompt, result.token_ids).argmax(-1).tolist() == result.token_ids


def _input(n, **changes):
    base = {
        "temperature": torch.ones(n), "greedy": torch.zeros(n, dtype=torch.bool), "any_greedy": False,
        "top_k": torch.zeros(n, dtype=torch.int64), "top_p": torch.ones(n), "limited": None,
    }
    return SamplerInput(**{**base, **changes})


def test_samples_follow_the_distribution():
    logits = torch.log(torch.tensor([0.5, 0.25, 0.2, 0.05])).repeat(20000, 1)
    noise = uniform(np.arange(20000, dtype=np.uint64), np.zeros(20000, np.int64))
    tokens, _ = sample(logits, _input(20000), noise)
    assert np.allclose(np.bincount(tokens.numpy(), minlength=4) / 20000, [0.5, 0.25, 0.2, 0.05], atol=0.015)


def test_a_token_of_probability_zero_is_never_drawn():
    logits = torch.tensor([[-np.inf, 0.0, -np.inf, 0.0, -np.inf]], dtype=torch.float32).repeat(5, 1)
    tokens, _ = sample(logits, _input(5), np.array([0.0, 0.25, 0.5, 1 - 2.0**-53, 0.999]))
    assert set(tokens.tolist()) <= {1, 3}


def test_noise_is_uniform_and_keyed_by_seed_and_index():
    seeds, indices = np.repeat(np.arange(100, dtype=np.uint64), 100), np.tile(np.arange(100), 100)
    draws = uniform(seeds, indices)
    assert len(np.unique(draws)) == 10000
    assert abs(draws.mean() - 0.5) < 0.01
    assert abs(draws.var() - 1 / 12) < 0.005
    grid = draws.reshape(100, 100)
    assert abs(np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]) < 0.04
    assert uniform(seeds[[42]], indices[[42]])[0] == draws[42]


def test_the_checksums_of_the_fused_weights_are_those_of_the_folder(model_dir, untied_dir, weights_of):
    for folder in (model_dir, untied_dir):
        assert weights_of(folder).checksums() == folder_checksums(folder)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t.pop("model.norm.weight"), "lack"),
        (lambda t: t.update({"model.norm.weight": np.ones(3, np.float32)}), "shape"),
        (lambda t: t["model.norm.weight"].__setitem__(0, np.nan), "not finite"),
        (lambda t: t.update({"model.extra": np.ones(3, np.float32)}), "no tensor"),
    ],
)
def test_unfit_weights_are_refused_by_name(spoil, message, model_dir):
    tensors = {name: values.copy() for name, values in read_weights(model_dir).items()}
    spoil(tensors)
    with pytest.raises(WeightUpdateFailed, match=message):
        Weights(load_model_config(model_dir), tensors, "1")


def test_a_folder_that_is_no_model_is_the_users_error(tmp_path):
    with pytest.raises(UserError, match="configuration"):
        load_model_config(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(UserError, match="LlamaForCausalLM"):
        load_model_config(tmp_path)
