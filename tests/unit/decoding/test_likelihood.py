"""The log-probability of known actions against standard operations, forwards and backwards."""

from __future__ import annotations

import math

import pytest
import torch

from torch import Tensor

from rl4co.decoding import likelihood
from rl4co.decoding.likelihood import chosen_log_prob


def plain(logits: Tensor, mask: Tensor, actions: Tensor, clipping: float) -> Tensor:
    """The same by standard operations in double precision."""
    scores = (logits.double().tanh() * clipping).masked_fill(~mask, -math.inf)
    return scores.log_softmax(-1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def example(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, masks and allowed actions."""
    rng = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(*shape, generator=rng)
    mask = torch.rand(shape, generator=rng) < 0.5
    actions = torch.randint(shape[-1], shape[:-1], generator=rng)
    mask.scatter_(-1, actions.unsqueeze(-1), True)
    return logits.requires_grad_(), mask, actions


def test_by_hand():
    """Scores 2 tanh(0) = 0, forbidden, 2 tanh(ln 3) = 2 * 0.8 = 1.6.

    log p_0 = -ln(1 + e^1.6) = -1.7839, log p_2 = 1.6 - 1.7839 = -0.1839.
    Gradient of log p_2: score 0 gets -p_0 = -0.16798, its slope is 2 (1 - 0²) = 2;
    score 2 gets 1 - p_2 = 0.16798, its slope is 2 (1 - 0.8²) = 0.72.
    """
    logits = torch.tensor([[0.0, 5.0, math.log(3.0)]] * 2, requires_grad=True)
    mask = torch.tensor([[True, False, True]] * 2)
    out = chosen_log_prob(logits, mask, torch.tensor([0, 2]), 2.0)
    torch.testing.assert_close(out, torch.tensor([-1.7839, -0.1839]), atol=1e-4, rtol=0)
    out[1].backward()
    expected = torch.tensor([[0.0, 0.0, 0.0], [-0.33596, 0.0, 0.12095]])
    torch.testing.assert_close(logits.grad, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("shape", [(7, 5), (1, 1), (3, 4, 6), (2, 3, 2, 9)], ids=str)
@pytest.mark.parametrize("clipping", [1.0, 10.0])
def test_values_and_gradients(shape, clipping):
    """For any number of leading axes, each row weighted differently."""
    logits, mask, actions = example(*shape)
    out = chosen_log_prob(logits, mask, actions, clipping)
    expected = plain(logits, mask, actions, clipping)
    assert out.shape == shape[:-1]
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-5)
    weight = torch.linspace(-1, 2, actions.numel()).view(actions.shape)
    ours = torch.autograd.grad((weight * out).sum(), logits)[0]
    theirs = torch.autograd.grad((weight * expected).sum(), logits)[0]
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    assert not bool(ours[~mask].any()), "forbidden actions have no gradient"


@pytest.mark.parametrize("block", [1, 10, 64, 10**9])
def test_blocks_do_not_matter(block, monkeypatch):
    """Single rows, blocks with a remainder, everything at once."""
    monkeypatch.setattr(likelihood, "_BLOCK", block)
    logits, mask, actions = example(23, 10)
    out = chosen_log_prob(logits, mask, actions, 10.0)
    expected = plain(logits, mask, actions, 10.0)
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-5)
    ours = torch.autograd.grad(out.square().sum(), logits)[0]
    theirs = torch.autograd.grad(expected.square().sum(), logits)[0]
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_arguments_are_left_alone():
    logits, mask, actions = example(6, 5)
    before = [x.detach().clone() for x in (logits, mask, actions)]
    chosen_log_prob(logits, mask, actions, 10.0).sum().backward()
    for tensor, value in zip((logits, mask, actions), before, strict=True):
        assert torch.equal(tensor, value)
        assert tensor._version <= 1


def test_strided_arguments():
    """Slices of a larger trace, as the replay passes them."""
    logits, mask, actions = example(6, 8, 5)
    part = (logits[:, ::2], mask[:, ::2], actions[:, ::2])
    out = chosen_log_prob(*part, 10.0)
    torch.testing.assert_close(out.double(), plain(*part, 10.0), atol=1e-5, rtol=1e-5)
    out.sum().backward()
    assert not bool(logits.grad[:, 1::2].any())


@pytest.mark.parametrize(
    ("dtype", "result", "tolerance"),
    [
        (torch.bfloat16, torch.float32, 1e-5),
        (torch.float16, torch.float32, 1e-5),
        (torch.float64, torch.float64, 1e-12),
    ],
    ids=str,
)
def test_other_precisions(dtype, result, tolerance):
    """Computed in single precision at least; gradients in the precision of the logits."""
    logits, mask, actions = example(9, 6)
    other = logits.detach().to(dtype).requires_grad_()
    out = chosen_log_prob(other, mask, actions, 10.0)
    assert out.dtype == result
    expected = plain(other.detach(), mask, actions, 10.0)
    torch.testing.assert_close(out.double(), expected, atol=tolerance, rtol=tolerance)
    out.sum().backward()
    assert other.grad.dtype == dtype


def test_numerical_gradient():
    """Finite differences in double precision."""
    logits, mask, actions = example(4, 5)
    logits = logits.detach().double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: chosen_log_prob(x, mask, actions, 3.0), logits)


def test_forced_and_forbidden_actions():
    """A single allowed action is certain; a forbidden one is impossible."""
    mask = torch.tensor([[False, True, False]] * 2)
    out = chosen_log_prob(torch.randn(2, 3), mask, torch.tensor([1, 0]), 10.0)
    assert out[0].item() == pytest.approx(0.0, abs=1e-6)
    assert out[1].item() == -math.inf


def test_nan_is_not_hidden():
    logits = torch.full((1, 3), math.nan)
    mask = torch.ones(1, 3, dtype=torch.bool)
    assert chosen_log_prob(logits, mask, torch.tensor([1]), 10.0).isnan().all()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("num_actions", [1, 7, 8, 9, 51])
def test_compiled_loops_agree_with_blocks(num_actions, threads, rng, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(likelihood, "_FEW", 0)
    logits = 3 * torch.randn(40, num_actions, generator=rng)
    actions = torch.randint(num_actions, (40,), generator=rng)
    mask = torch.rand(40, num_actions, generator=rng) < 0.5
    mask[torch.arange(40), actions] = True
    grad = torch.randn(40, generator=rng)
    found = []
    for function in (likelihood._CompiledLogProb, likelihood._ChosenLogProb):
        x = logits.clone().requires_grad_()
        out = function.apply(x, mask, actions, 10.0)
        found.append((out.detach(), *torch.autograd.grad(out, x, grad)))
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)
