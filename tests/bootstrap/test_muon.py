"""The warm start's optimizer of matrices."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from spade_agentic.bootstrap.muon import Float32Muon, orthogonalised


@settings(deadline=None)
@given(st.integers(2, 24), st.integers(2, 24), st.integers(0, 2**31))
def test_a_direction_has_all_singular_values_near_one(rows, columns, seed):
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    given_values, values = torch.linalg.svdvals(matrix), torch.linalg.svdvals(orthogonalised(matrix))
    well_conditioned = given_values / given_values.norm() > 0.02
    assert values.max() < 1.3
    assert (values[well_conditioned] > 0.6).all()


@pytest.mark.parametrize("shape", [(128, 384), (384, 128), (64, 128)])
def test_it_steps_like_torchs_muon_but_for_the_rounding_to_bfloat16(shape):
    torch.manual_seed(0)
    start = torch.randn(shape)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    reference = torch.optim.Muon([theirs], lr=0.01, weight_decay=0, adjust_lr_fn="match_rms_adamw")
    optimizers: list[torch.optim.Optimizer] = [Float32Muon([ours], lr=0.01), reference]
    for _ in range(3):
        gradient = torch.randn(shape)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    moved = (theirs - start).norm()
    assert moved > 0.1
    assert (ours - theirs).norm() < 0.03 * moved


def test_a_vector_is_refused_with_its_shape():
    with pytest.raises(ValueError, match=r"shape \(7,\)"):
        Float32Muon([torch.nn.Parameter(torch.zeros(7))], lr=0.1)


def test_a_matrix_without_a_gradient_stays():
    matrix = torch.nn.Parameter(torch.ones(2, 3))
    Float32Muon([matrix], lr=0.1).step()
    assert torch.equal(matrix, torch.ones(2, 3))
