"""The policy: every way to compute a batch gives the same log-probs and gradients as one sequence at a time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from spade_agentic import ConfigError, LearnerError, TrainSequence
from spade_agentic.learning import torch_model
from spade_agentic.learning.batches import MicroBatch, pack, pad
from spade_agentic.learning.options import LoraOptions
from spade_agentic.learning.torch_model import TorchPolicy, check_finite

MakeBatch = Callable[..., list[TrainSequence]]


def plain(model_dir: Path, batch: list[TrainSequence], dtype: torch.dtype) -> tuple[dict[str, list[float]], dict[str, Tensor]]:
    """Log-probs and gradients by the textbook: one sequence after the other through the unchanged model."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).to(dtype)
    logprobs: dict[str, list[float]] = {}
    for s in batch:
        logits = model(torch.tensor([s.token_ids])).logits[0, :-1] / s.temperature
        picked = logits.log_softmax(-1).gather(1, torch.tensor(s.token_ids[1:])[:, None])[:, 0]
        mine = picked[torch.tensor(s.mask[1:])]
        (mine.sum() * s.advantage).backward()
        logprobs[s.sequence_id] = mine.tolist()
    return logprobs, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def computed(policy: TorchPolicy, micros: list[MicroBatch]) -> tuple[dict[str, list[float]], dict[str, Tensor]]:
    logprobs: dict[str, list[float]] = {}
    for micro in micros:
        values, _ = policy.logprobs(micro)
        (values * micro.advantage).sum().backward()
        for i, name in enumerate(micro.sequence_ids):
            logprobs[name] = values[micro.sequence == i].tolist()
    return logprobs, {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}


WAYS = {
    "shared prefixes": (True, lambda b: pack(b, 4096)),
    "shared prefixes, small rows": (True, lambda b: pack(b, 128)),
    "plain packing": (True, lambda b: pack(b, 4096, share=False)),
    "padded": (False, lambda b: pad(b, 512)),
}


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_batching_gives_the_gradient_of_one_sequence_at_a_time(
    way: str, temperature: float, model_dir: Path, make_batch: MakeBatch
) -> None:
    """In float64 parameters; the model's own norms and rotary tables are single precision inside, hence the tolerance."""
    packed, split = WAYS[way]
    batch = make_batch(temperature=temperature)
    policy = TorchPolicy(model_dir, packed=packed)
    policy.model.double()
    logprobs, gradients = computed(policy, split(batch))
    expected, expected_gradients = plain(model_dir, batch, torch.float64)
    for name, values in expected.items():
        assert logprobs[name] == pytest.approx(values, abs=2e-6), name
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in expected_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-5, atol=2e-5 * float(gradient.abs().max()))


def test_masked_tokens_give_no_gradient(model_dir: Path, make_batch: MakeBatch) -> None:
    """The log-prob of a token that was not sampled is in no loss: with untied rows, its output embedding stays untouched."""
    batch = make_batch()
    sampled = {t for s in batch for t, m in zip(s.token_ids, s.mask, strict=True) if m}
    for micro in pack(batch, 4096):
        assert set(micro.target.tolist()) <= sampled
    before = sum(m.trained_tokens for m in pack(batch, 4096))
    assert before == sum(sum(s.mask) for s in batch)


def test_an_observation_cannot_change_what_was_said_before_it(model_dir: Path, make_batch: MakeBatch) -> None:
    import dataclasses

    policy = TorchPolicy(model_dir)
    (sequence, *_) = make_batch(1, 1, drafts=0)
    last = max(i for i, m in enumerate(sequence.mask) if m)
    changed = (*sequence.token_ids[: last + 1], *((t + 1) % 64 for t in sequence.token_ids[last + 1 :]))
    other = dataclasses.replace(sequence, token_ids=changed)
    assert torch.equal(policy.logprobs(pack([sequence], 512)[0])[0], policy.logprobs(pack([other], 512)[0])[0])


def test_logits_beyond_the_limit_are_computed_in_chunks_with_the_same_result(
    model_dir: Path, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = make_batch()
    whole, whole_gradients = computed(TorchPolicy(model_dir), pack(batch, 4096))
    monkeypatch.setattr(torch_model, "LOGIT_ELEMENTS", 7 * 64)
    parts, part_gradients = computed(TorchPolicy(model_dir), pack(batch, 4096))
    for name, values in whole.items():
        assert parts[name] == pytest.approx(values, abs=1e-5)
    for name, gradient in whole_gradients.items():
        torch.testing.assert_close(part_gradients[name], gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max()))


def test_gradient_checkpointing_changes_no_bit(model_dir: Path, make_batch: MakeBatch) -> None:
    batch = make_batch()
    _, kept = computed(TorchPolicy(model_dir), pack(batch, 256))
    _, recomputed = computed(TorchPolicy(model_dir, gradient_checkpointing=True), pack(batch, 256))
    for name, gradient in kept.items():
        assert torch.equal(gradient, recomputed[name]), name


def test_the_last_mlp_is_computed_only_where_a_token_is_predicted(model_dir: Path, make_batch: MakeBatch) -> None:
    policy = TorchPolicy(model_dir)
    rows: list[int] = []
    layers = policy.model.get_decoder().layers
    for layer in layers:
        layer.mlp.up_proj.register_forward_pre_hook(lambda _, args: rows.append(args[0].shape[-2]))
    (micro,) = pack(make_batch(), 4096)
    policy.logprobs(micro)
    assert rows == [micro.computed_tokens, len(micro.source.unique())]
    assert rows[1] < rows[0]


def test_a_bfloat16_policy_computes_nearly_the_same_and_keeps_single_precision_weights(
    model_dir: Path, make_batch: MakeBatch, tmp_path: Path
) -> None:
    batch = make_batch()
    policy = TorchPolicy(model_dir, bfloat16=True)
    half, gradients = computed(policy, pack(batch, 4096))
    full, _ = computed(TorchPolicy(model_dir), pack(batch, 4096))
    for name, values in full.items():
        assert half[name] == pytest.approx(values, abs=0.5)
    assert all(p.dtype == torch.float32 for _, p in policy.named_parameters())
    assert all(bool(torch.isfinite(g).all()) for g in gradients.values())
    policy.export(tmp_path / "out")
    assert {t.dtype for t in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"


def test_an_export_is_a_model_folder_with_the_same_weights_and_the_tokenizers_files(model_dir: Path, tmp_path: Path) -> None:
    TorchPolicy(model_dir).export(tmp_path / "out")
    before, after = load_file(model_dir / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (tmp_path / "out" / "tokenizer_config.json").read_text() == (model_dir / "tokenizer_config.json").read_text()
    AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert "spade_packed" not in (tmp_path / "out" / "config.json").read_text()


def test_a_lora_export_has_the_adapters_merged_in(model_dir: Path, make_batch: MakeBatch, tmp_path: Path) -> None:
    policy = TorchPolicy(model_dir, lora=LoraOptions(rank=4))
    with torch.no_grad():
        for _, parameter in policy.named_parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    policy.export(tmp_path / "out")
    base = load_file(model_dir / "model.safetensors")
    merged = load_file(tmp_path / "out" / "model.safetensors")
    assert merged.keys() == base.keys()
    assert any(not torch.equal(base[name], merged[name]) for name in base)
    batch = make_batch()
    adapted, _ = computed(policy, pack(batch, 4096))
    exported, _ = computed(TorchPolicy(tmp_path / "out"), pack(batch, 4096))
    for name, values in adapted.items():
        assert exported[name] == pytest.approx(values, abs=1e-4)


def test_lora_trains_adapters_alone_and_begins_as_the_base_model(model_dir: Path, make_batch: MakeBatch) -> None:
    batch = make_batch()
    policy = TorchPolicy(model_dir, lora=LoraOptions(rank=4, target_modules=["q_proj", "v_proj"]))
    assert all("lora_" in name for name, _ in policy.named_parameters())
    assert len(policy.named_parameters()) == 2 * 2 * 2
    mine, _ = computed(policy, pack(batch, 4096))
    base, _ = computed(TorchPolicy(model_dir), pack(batch, 4096))
    for name, values in base.items():
        assert mine[name] == pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize("lora", [None, LoraOptions(rank=4)])
def test_the_reference_is_the_policy_as_it_was_loaded(
    lora: LoraOptions | None, model_dir: Path, make_batch: MakeBatch
) -> None:
    (micro,) = pack(make_batch(), 4096)
    policy = TorchPolicy(model_dir, lora=lora)
    before = policy.logprobs(micro)[0].detach()
    reference = policy.frozen_copy()
    with torch.no_grad():
        for _, parameter in policy.named_parameters():
            parameter.add_(0.1)
        torch.testing.assert_close(reference.logprobs(micro)[0], before)
        assert float((policy.logprobs(micro)[0] - before).abs().max()) > 1e-3


SHAPE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 128}


def test_a_llama_fits_packed_rows_too(tmp_path: Path, make_batch: MakeBatch) -> None:
    LlamaForCausalLM(LlamaConfig(**SHAPE)).save_pretrained(tmp_path)
    batch = make_batch()
    packed, _ = computed(TorchPolicy(tmp_path), pack(batch, 4096))
    expected, _ = plain(tmp_path, batch, torch.float32)
    for name, values in expected.items():
        assert packed[name] == pytest.approx(values, abs=1e-4)


def test_a_model_with_a_sliding_window_is_refused_with_what_to_do(tmp_path: Path) -> None:
    config = Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=8, max_window_layers=0)
    Qwen2ForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="packed attention does not fit") as caught:
        TorchPolicy(tmp_path)
    assert "attention to 'model'" in str(caught.value)
    TorchPolicy(tmp_path, packed=False)


def test_a_folder_without_a_model_a_broken_model_and_a_missing_gpu_are_the_users_to_mend(
    model_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="no model here"):
        TorchPolicy(tmp_path)
    shutil.copy(model_dir / "config.json", tmp_path)
    with pytest.raises(ConfigError, match="cannot load this model"):
        TorchPolicy(tmp_path)
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no CUDA device"):
            TorchPolicy(model_dir, device="cuda")


def test_lora_on_modules_that_are_not_there_is_refused(model_dir: Path) -> None:
    with pytest.raises(ConfigError, match="peft refuses"):
        TorchPolicy(model_dir, lora=LoraOptions(target_modules=["nowhere"]))


def test_a_value_that_is_not_finite_is_reported_with_its_sequence(make_batch: MakeBatch) -> None:
    (micro,) = pack(make_batch(), 4096)
    values = torch.zeros(micro.trained_tokens)
    check_finite(values, micro, "the values")
    values[-1] = float("nan")
    with pytest.raises(LearnerError, match=f"1 of {micro.trained_tokens} tokens are not finite.*{micro.sequence_ids[-1]!r}"):
        check_finite(values, micro, "the values")
