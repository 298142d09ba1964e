"""The loss is what its docstring says: against a plain loop, against finite differences, and rule by rule."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from spade_agentic.learning.loss import (
    LossConfig,
    TokenRecord,
    importance_weight,
    low_variance_kl,
    policy_loss,
    summarise,
    token_logprobs,
)


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def plain_loss(
    logprobs: list[float], prox: list[float], rollout: list[float], advantage: list[float], weight: list[float],
    reference: list[float], normaliser: float, config: LossConfig,
) -> float:
    """The formula of the module's docstring, token by token."""
    total = 0.0
    for lp, px, ro, a, w, ref in zip(logprobs, prox, rollout, advantage, weight, reference, strict=True):
        ratio = math.exp(lp - px)
        importance = min(math.exp(px - ro), config.is_cap)
        clipped = min(max(ratio, 1 - config.clip_low), 1 + config.clip_high)
        kl = math.exp(ref - lp) - (ref - lp) - 1
        total += w * (-importance * min(ratio * a, clipped * a) + config.kl_coef * kl)
    return total / normaliser


token = st.tuples(
    st.floats(-6, -0.01), st.floats(-6, -0.01), st.floats(-6, -0.01), st.floats(-3, 3), st.floats(0, 4), st.floats(-6, -0.01)
)


@settings(max_examples=200, deadline=None)
@given(tokens=st.lists(token, min_size=1, max_size=20), kl_coef=st.sampled_from([0.0, 0.005, 1.0]), normaliser=st.floats(1, 99))
def test_the_loss_is_the_formula(tokens: list[tuple[float, ...]], kl_coef: float, normaliser: float) -> None:
    config = LossConfig(clip_low=0.2, clip_high=0.28, is_cap=2.0, kl_coef=kl_coef)
    columns = [list(c) for c in zip(*tokens, strict=True)]
    logprobs, prox, rollout, advantage, weight, reference = (double(*c) for c in columns)
    loss = policy_loss(
        logprobs, prox=prox, rollout=rollout, advantage=advantage, weight=weight, normaliser=normaliser, config=config,
        reference=reference,
    )
    expected = plain_loss(*columns, normaliser, config)
    assert float(loss) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_gradient_of_the_loss_is_that_of_finite_differences() -> None:
    prox, rollout = double(-1.0, -2.0, -0.5, -3.0, -1.5), double(-1.2, -1.0, -0.6, -3.3, -3.5)
    advantage, weight = double(1.0, -1.0, 0.5, -2.0, 0.7), double(1.0, 1.0, 3.0, 0.5, 1.0)
    logprobs = (prox + double(0.05, -0.1, 0.6, 0.4, -0.5)).requires_grad_()  # none at a corner of the clip

    def loss(x: Tensor) -> Tensor:
        return policy_loss(
            x, prox=prox, rollout=rollout, advantage=advantage, weight=weight, normaliser=5.0,
            config=LossConfig(kl_coef=0.1), reference=prox - 0.2,
        )

    assert torch.autograd.gradcheck(loss, (logprobs,))


def gradient(
    logprob: float, *, prox: float = -1.0, rollout: float = -1.0, advantage: float, weight: float = 1.0,
) -> float:
    x = double(logprob).requires_grad_()
    policy_loss(
        x, prox=double(prox), rollout=double(rollout), advantage=double(advantage), weight=double(weight), normaliser=1.0,
        config=LossConfig(),
    ).backward()
    assert x.grad is not None
    return float(x.grad)


def test_the_clip_is_asymmetric_and_takes_away_only_what_goes_too_far() -> None:
    up, down = math.log(1.28), math.log(0.8)
    assert gradient(-1 + up + 0.01, advantage=1.0) == 0.0
    assert gradient(-1 + up - 0.01, advantage=1.0) < 0.0
    assert gradient(-1 + down - 0.01, advantage=-1.0) == 0.0
    assert gradient(-1 + down + 0.01, advantage=-1.0) > 0.0
    # A token that moved against its advantage keeps its gradient, however far it went.
    assert gradient(-3.0, advantage=1.0) < 0.0
    assert gradient(-0.1, advantage=-1.0) > 0.0


def test_at_the_start_of_a_step_the_gradient_is_the_policy_gradient() -> None:
    assert gradient(-1.0, advantage=0.7) == pytest.approx(-0.7)
    assert gradient(-1.0, advantage=0.7, weight=4.0) == pytest.approx(-2.8)


def test_the_importance_weight_is_cut_at_its_cap_and_carries_no_gradient() -> None:
    prox = double(-1.0, -1.0, -1.0).requires_grad_()
    weight = importance_weight(prox, double(-1.0, -1.5, -9.0), 2.0)
    assert weight.tolist() == pytest.approx([1.0, math.exp(0.5), 2.0])
    assert not weight.requires_grad
    assert gradient(-1.0, rollout=-9.0, advantage=1.0) == pytest.approx(-2.0)
    assert gradient(-1.0, rollout=-0.5, advantage=1.0) == pytest.approx(-math.exp(-0.5))


def test_the_low_variance_kl_is_unbiased_and_never_negative() -> None:
    policy, reference = double(0.1, 0.2, 0.7), double(0.3, 0.3, 0.4)
    estimate = low_variance_kl(policy.log(), reference.log())
    assert bool((estimate >= 0).all())
    expected = float((policy * (policy.log() - reference.log())).sum())
    assert float((policy * estimate).sum()) == pytest.approx(expected)
    assert float(low_variance_kl(policy.log(), policy.log()).abs().max()) == 0.0


def test_a_long_sequence_weighs_by_its_tokens_and_micro_batches_add_up() -> None:
    """Per-token mean of the batch: cutting it into micro-batches changes nothing."""
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(12, generator=generator, dtype=torch.float64) for _ in range(4)]

    def loss(part: slice) -> float:
        logprobs, prox, rollout, advantage = (v[part] for v in values)
        return float(policy_loss(
            logprobs, prox=prox, rollout=rollout, advantage=advantage, weight=torch.ones_like(prox), normaliser=12.0,
            config=LossConfig(),
        ))

    assert loss(slice(0, 12)) == pytest.approx(loss(slice(0, 5)) + loss(slice(5, 12)))


def test_a_kl_without_a_reference_and_a_normaliser_of_zero_are_refused() -> None:
    one = double(-1.0)
    arguments = {"prox": one, "rollout": one, "advantage": one, "weight": one}
    with pytest.raises(ValueError, match="reference"):
        policy_loss(one, **arguments, normaliser=1.0, config=LossConfig(kl_coef=0.1))
    with pytest.raises(ValueError, match="normaliser"):
        policy_loss(one, **arguments, normaliser=0.0, config=LossConfig())


def test_logprobs_are_those_of_the_tempered_distribution() -> None:
    logits = torch.randn(3, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    temperature, target = double(1.0, 0.6, 2.0), torch.tensor([0, 3, 6])
    logprobs, entropy = token_logprobs(logits, target, temperature)
    for i in range(3):
        distribution = (logits[i] / temperature[i]).softmax(0)
        assert float(logprobs[i]) == pytest.approx(float(distribution[target[i]].log()))
        assert float(entropy[i]) == pytest.approx(float(-(distribution * distribution.log()).sum()))


def test_logprobs_of_half_precision_logits_are_kept_in_single() -> None:
    logprobs, entropy = token_logprobs(torch.zeros(2, 8, dtype=torch.bfloat16), torch.tensor([0, 1]), torch.ones(2))
    assert logprobs.dtype == entropy.dtype == torch.float32
    assert logprobs.tolist() == pytest.approx([-math.log(8)] * 2)


def record(role: list[int], **columns: list[float]) -> TokenRecord:
    n = len(role)
    values = {"logprobs": [-1.0] * n, "prox": [-1.0] * n, "rollout": [-1.0] * n, "advantage": [1.0] * n,
              "entropy": [0.5] * n, "signal": [0.0] * n, **columns}
    return TokenRecord(torch.tensor(role), **{name: double(*v) for name, v in values.items()})


def test_metrics_are_kept_per_role_and_a_silent_role_says_so() -> None:
    metrics = summarise([record([0, 0], signal=[0.25, -0.5])], ["agent", "designer"], LossConfig())
    assert metrics["agent/tokens"] == 2
    assert metrics["agent/ratio_mean"] == metrics["agent/ratio_max"] == 1.0
    assert metrics["agent/signal"] == 0.75
    assert {name: v for name, v in metrics.items() if name.startswith("designer/")} == {"designer/tokens": 0.0}


def test_metrics_count_what_was_truncated_and_what_was_clipped() -> None:
    far = record(
        [0, 0, 1, 1], rollout=[-1.0, -2.0, -1.0, -1.0], logprobs=[-1.0, -1.0, -0.7, -1.3], advantage=[1.0, 1.0, 1.0, 1.0]
    )
    metrics = summarise([far], ["agent", "designer"], LossConfig())
    assert metrics["agent/truncated_share"] == 0.5
    assert metrics["agent/mismatch_kl"] == pytest.approx((math.e - 1 - 1) / 2)
    assert metrics["designer/clipped_share"] == 0.5  # +0.3 with a positive advantage; -0.3 with one is not clipped
    assert metrics["designer/update_ratio_mean"] == pytest.approx((math.exp(0.3) + math.exp(-0.3)) / 2)
