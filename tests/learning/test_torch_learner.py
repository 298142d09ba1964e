"""The torch learner: it learns, it says what it saw, and it continues bit for bit."""

from __future__ import annotations

import dataclasses
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from spade_agentic import Learner, LearnerError, Role, TorchLearner, TorchOptions, TrainSequence
from spade_agentic.learning.advantages import agent_advantages
from spade_agentic.learning.batches import pack

MakeBatch = Callable[..., list[TrainSequence]]


def weights(learner: TorchLearner) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in learner.named}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def on_policy(model_dir: Path, batch: list[TrainSequence]) -> list[TrainSequence]:
    """The batch with the log-probs that the unchanged model gives its tokens, one sequence at a time."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    result = []
    for s in batch:
        with torch.no_grad():
            logits = model(torch.tensor([s.token_ids])).logits[0, :-1] / s.temperature
        picked = logits.log_softmax(-1).gather(1, torch.tensor(s.token_ids[1:])[:, None])[:, 0].tolist()
        result.append(dataclasses.replace(
            s, rollout_logprobs=tuple(p if m else 0.0 for p, m in zip([0.0, *picked], s.mask, strict=True))
        ))
    return result


def test_it_is_a_learner(model_dir: Path) -> None:
    assert isinstance(TorchLearner(model_dir), Learner)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("attention", ["packed", "model"])
def test_the_ratio_is_1_at_step_0_for_each_role(
    attention: str, temperature: float, model_dir: Path, make_batch: MakeBatch
) -> None:
    learner = TorchLearner(model_dir, TorchOptions(attention=attention))  # type: ignore[arg-type]
    metrics = learner.step(on_policy(model_dir, make_batch(temperature=temperature)))
    for role in ("agent", "designer"):
        for name in ("ratio_mean", "ratio_min", "ratio_max", "update_ratio_mean"):
            assert metrics[f"{role}/{name}"] == pytest.approx(1.0, abs=1e-4), (role, name)
        assert metrics[f"{role}/mismatch_kl"] == pytest.approx(0.0, abs=1e-8)
        assert metrics[f"{role}/truncated_share"] == metrics[f"{role}/clipped_share"] == 0.0
        assert metrics[f"{role}/signal"] > 0.0


def test_a_sampler_at_another_temperature_shows_in_the_ratio(model_dir: Path, make_batch: MakeBatch) -> None:
    batch = on_policy(model_dir, make_batch(temperature=0.6))
    wrong = [dataclasses.replace(s, temperature=1.0) for s in batch]
    metrics = TorchLearner(model_dir).step(wrong)
    assert metrics["agent/mismatch_kl"] > 1e-2


OPTIONS = {
    "default": {},
    "minibatches and epochs": {"minibatches": 3, "epochs": 2},
    "kl": {"kl_coef": 0.05},
    "lora": {"lora": {"rank": 4}, "lr": 1e-3},
    "checkpointing": {"gradient_checkpointing": True, "minibatch_sequences": 5},
    "padded": {"attention": "model"},
    "bfloat16": {"dtype": "bfloat16"},
}


def learner_with(model_dir: Path, name: str, seed: int = 3) -> TorchLearner:
    return TorchLearner(model_dir, TorchOptions(**{"lr": 1e-3, "token_budget": 256, "threads": 1, **OPTIONS[name]}), seed=seed)


@pytest.mark.parametrize("name", OPTIONS)
def test_save_and_load_in_the_middle_continue_bit_for_bit(
    name: str, model_dir: Path, make_batch: MakeBatch, tmp_path: Path
) -> None:
    batches = [make_batch(seed=i) for i in range(4)]
    whole = learner_with(model_dir, name)
    first = learner_with(model_dir, name)
    for batch in batches[:2]:
        whole.step(batch)
        first.step(batch)
    first.save(tmp_path)
    first.close()
    second = learner_with(model_dir, name)
    second.load(tmp_path)
    assert second.steps == 2
    for batch in batches[2:]:
        expected, found = whole.step(batch), second.step(batch)
        timing = {"seconds", "tokens_per_s"}
        assert {k: v for k, v in expected.items() if k not in timing} == {k: v for k, v in found.items() if k not in timing}
    assert same(weights(whole), weights(second))


def test_saving_does_not_show_in_what_follows(model_dir: Path, make_batch: MakeBatch, tmp_path: Path) -> None:
    quiet, saving = learner_with(model_dir, "minibatches and epochs"), learner_with(model_dir, "minibatches and epochs")
    for i in range(2):
        quiet.step(make_batch(seed=i))
        saving.save(tmp_path / f"{i}")
        saving.save_weights(tmp_path / f"w{i}")
        saving.step(make_batch(seed=i))
    assert same(weights(quiet), weights(saving))


@pytest.mark.parametrize("name", ["default", "minibatches and epochs"])
def test_the_order_of_the_batch_changes_no_bit(name: str, model_dir: Path, make_batch: MakeBatch) -> None:
    batch = make_batch()
    straight, shuffled = learner_with(model_dir, name), learner_with(model_dir, name)
    straight.step(batch)
    shuffled.step(random.Random(5).sample(batch, len(batch)))
    assert same(weights(straight), weights(shuffled))


_TWO_STEPS = """
import hashlib, random
from pathlib import Path
from spade_agentic import Role, TorchLearner, TorchOptions, TrainSequence

def two_steps(model, out):
    rng = random.Random(1)
    prompt, mask, logprobs = [7] * 20, (False,) * 20 + (True,) * 12, (0.0,) * 20 + (-4.0,) * 12
    batch = [
        TrainSequence(f"s{i}", Role.AGENT, (*prompt, *(rng.randrange(64) for _ in range(12))), mask, logprobs, rng.gauss(0, 1))
        for i in range(12)
    ]
    learner = TorchLearner(Path(model), TorchOptions(lr=1e-3, minibatches=2, threads=2), seed=4)
    for _ in range(2):
        learner.step(batch)
    learner.save_weights(Path(out))
    return hashlib.sha256((Path(out) / "model.safetensors").read_bytes()).hexdigest()
"""


def test_two_processes_make_the_same_bytes(model_dir: Path, tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(_TWO_STEPS, names)
    here = names["two_steps"](model_dir, tmp_path / "here")
    there = subprocess.run(
        [sys.executable, "-c", f"{_TWO_STEPS}\nprint(two_steps({str(model_dir)!r}, {str(tmp_path / 'there')!r}))"],
        capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "5", "PATH": "/usr/bin:/bin"},
    ).stdout.strip()
    assert here == there


def test_another_seed_deals_other_minibatches(model_dir: Path, make_batch: MakeBatch) -> None:
    results = []
    for seed in (1, 2):
        learner = learner_with(model_dir, "minibatches and epochs", seed=seed)
        learner.step(make_batch())
        results.append(weights(learner))
    assert not same(*results)


@pytest.mark.parametrize(
    ("options", "updates"),
    [({}, 1), ({"minibatches": 3}, 3), ({"minibatches": 3, "epochs": 2}, 6), ({"minibatch_sequences": 7}, 2)],
)
def test_a_step_takes_as_many_updates_as_its_options_say(
    options: dict[str, int], updates: int, model_dir: Path, make_batch: MakeBatch
) -> None:
    learner = TorchLearner(model_dir, TorchOptions(**options))  # type: ignore[arg-type]
    assert learner.step(make_batch())["updates"] == updates  # 14 sequences
    assert learner.updates == updates
    assert learner.steps == 1


@pytest.mark.parametrize("name", ["lora", "checkpointing", "bfloat16", "padded", "minibatches and epochs"])
def test_the_loss_falls_on_a_repeated_batch(name: str, model_dir: Path, make_batch: MakeBatch) -> None:
    batch = on_policy(model_dir, make_batch())
    learner = learner_with(model_dir, name)

    def objective() -> float:
        """The mean of advantage times log-prob, which the update is to raise."""
        with torch.no_grad():
            pairs = [(m.advantage * m.weight * learner.policy.logprobs(m)[0]).sum() for m in learner._micro_batches(batch)]
        return float(sum(pairs)) / sum(sum(s.mask) for s in batch)

    before = objective()
    metrics = [learner.step(batch) for _ in range(3)]
    assert all(math.isfinite(v) for m in metrics for v in m.values())
    assert objective() > before


def test_the_rate_warms_up_and_then_stays(model_dir: Path, make_batch: MakeBatch) -> None:
    learner = TorchLearner(model_dir, TorchOptions(lr=1e-3, warmup_updates=4))
    rates = [learner.step(make_batch())["lr"] for _ in range(6)]
    assert rates == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3, 1e-3])


def test_weight_decay_leaves_norms_alone(model_dir: Path) -> None:
    decayed, kept = TorchLearner(model_dir).optimizer.param_groups
    assert decayed["weight_decay"] == 0.1
    assert kept["weight_decay"] == 0.0
    assert all(p.ndim >= 2 for p in decayed["params"])
    assert all(p.ndim == 1 for p in kept["params"])


def test_the_gradient_is_clipped_and_its_norm_reported_before_clipping(model_dir: Path, make_batch: MakeBatch) -> None:
    learner = TorchLearner(model_dir, TorchOptions(max_grad_norm=1e-3))
    metrics = learner.step([dataclasses.replace(s, advantage=100.0 * s.advantage) for s in make_batch()])
    assert metrics["grad_norm"] > 1.0
    left = math.sqrt(sum(float(p.grad.pow(2).sum()) for _, p in learner.named if p.grad is not None))
    assert left == pytest.approx(1e-3, rel=1e-2)


def test_the_weight_of_a_role_scales_its_gradient(model_dir: Path, make_batch: MakeBatch) -> None:
    signals = []
    for weight in (1.0, 5.0):
        batch = [dataclasses.replace(s, weight=weight if s.role is Role.DESIGNER else 1.0) for s in make_batch()]
        signals.append(TorchLearner(model_dir).step(batch))
    assert signals[1]["designer/signal"] == pytest.approx(5 * signals[0]["designer/signal"])
    assert signals[1]["agent/signal"] == pytest.approx(signals[0]["agent/signal"])


def test_a_batch_of_one_role_trains(model_dir: Path, make_batch: MakeBatch) -> None:
    metrics = TorchLearner(model_dir).step(make_batch(groups=0, drafts=3))
    assert metrics["agent/tokens"] == metrics["agent/sequences"] == 0
    assert metrics["designer/signal"] > 0


def test_a_step_computes_less_than_its_tokens_where_prefixes_are_shared(model_dir: Path, make_batch: MakeBatch) -> None:
    batch = make_batch()
    shared = TorchLearner(model_dir).step(batch)
    alone = TorchLearner(model_dir, TorchOptions(prefix_sharing=False)).step(batch)
    assert shared["computed_tokens"] < 0.6 * alone["computed_tokens"]
    assert shared["grad_norm"] == pytest.approx(alone["grad_norm"], rel=1e-4)
    assert shared["trained_tokens"] == alone["trained_tokens"] == sum(sum(s.mask) for s in batch)


def test_the_kl_pulls_back_to_the_model_the_run_began_with(model_dir: Path, make_batch: MakeBatch) -> None:
    batch = on_policy(model_dir, make_batch())
    silent = [dataclasses.replace(s, advantage=0.0) for s in batch]
    learner = TorchLearner(model_dir, TorchOptions(kl_coef=1.0, lr=1e-3, weight_decay=0.0))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _, p in learner.named:
            p.add_(0.05 * torch.randn(p.shape, generator=generator))
    distances = [learner.step(silent)["agent/reference_kl"] for _ in range(8)]
    assert distances[0] > 0.0
    assert distances[-1] < 0.7 * distances[0]


def test_an_update_that_is_not_finite_is_refused_and_changes_nothing(model_dir: Path, make_batch: MakeBatch) -> None:
    batch = make_batch()
    learner = TorchLearner(model_dir)
    with torch.no_grad():
        learner.named[0][1][batch[0].token_ids[0]] = float("inf")
    before = weights(learner)
    with pytest.raises(LearnerError, match=r"not finite.*not changed"):
        learner.step(batch)
    assert same(before, weights(learner))
    assert learner.steps == learner.updates == 0
    assert not learner.optimizer.state


def test_states_of_another_model_and_missing_ones_are_refused(model_dir: Path, tmp_path: Path) -> None:
    learner = TorchLearner(model_dir)
    with pytest.raises(LearnerError, match="no learner state"):
        learner.load(tmp_path)
    learner.save(tmp_path)
    with pytest.raises(LearnerError, match="another model"):
        learner_with(model_dir, "lora").load(tmp_path)


def test_the_number_of_threads_is_what_the_option_says(model_dir: Path) -> None:
    TorchLearner(model_dir, TorchOptions(threads=2))
    assert torch.get_num_threads() == 2


def test_grpo_raises_the_probability_of_a_rewarded_token(model_dir: Path) -> None:
    """A bandit: one prompt, 16 samples a step, reward 1 for one of 64 tokens that the policy likes moderately."""
    learner = TorchLearner(model_dir, TorchOptions(lr=3e-3, weight_decay=0.0))
    prompt = (3, 1, 4, 1, 5, 9, 2, 6)
    generator = torch.Generator().manual_seed(0)

    def distribution() -> torch.Tensor:
        with torch.no_grad():
            return learner.policy.model(torch.tensor([prompt]), tree_layout=_row(prompt)).logits[0, -1].softmax(0)

    target = int(distribution().argsort(descending=True)[4])
    before = float(distribution()[target])
    for step in range(25):
        probabilities = distribution()
        tokens = torch.multinomial(probabilities, 16, replacement=True, generator=generator).tolist()
        advantages = agent_advantages([float(t == target) for t in tokens], ["bandit"] * 16)
        mask, before_it = (False,) * 8 + (True,), (0.0,) * 8
        batch = [
            TrainSequence(f"{step}-{i}", Role.AGENT, (*prompt, t), mask, (*before_it, float(probabilities[t].log())), a)
            for i, (t, a) in enumerate(zip(tokens, advantages, strict=True)) if a is not None
        ]
        if batch:
            learner.step(batch)
    assert before < 0.2
    assert float(distribution()[target]) > 0.9


def _row(prompt: tuple[int, ...]) -> object:
    whole = TrainSequence("row", Role.AGENT, (*prompt, 0), (False,) * len(prompt) + (True,), (0.0,) * (len(prompt) + 1), 0.0)
    return pack([whole], 64)[0].layout


def test_the_plugin_builds_the_learner_from_its_options_and_the_runs_seed(model_dir: Path) -> None:
    from spade_agentic_plugins.torch_learner import learner

    (factory,) = learner()
    context = SimpleNamespace(config=SimpleNamespace(model=SimpleNamespace(path=str(model_dir))), run_seed=11)
    built = factory.build(factory.options.model_validate({"lr": 0.5, "threads": 1}), context)
    assert isinstance(built, TorchLearner)
    assert built.options.lr == 0.5
    with pytest.raises(ValueError, match="learning_rate"):
        factory.options.model_validate({"learning_rate": 1.0})
