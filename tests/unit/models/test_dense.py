"""Linear layers of oneDNN against torch's own."""

from __future__ import annotations

import pytest
import torch

from torch import Tensor, nn

from rl4co.models.nn import dense
from rl4co.models.nn.attention import MultiHeadAttention
from rl4co.models.nn.dense import can_fuse, feed_forward, linear
from rl4co.models.nn.transformer import FeedForward, add_block

ROWS = dense._FEW + 3  # the last block of rows is not full


def values_and_gradients(function, x: Tensor, layers: list[nn.Linear]) -> list[Tensor]:
    x = x.clone().requires_grad_()
    for layer in layers:
        layer.zero_grad()
    out = function(x, *layers)
    (out * torch.linspace(-1.0, 1.0, out.numel()).view_as(out)).sum().backward()
    weights = [weight.grad for layer in layers for weight in layer.parameters()]
    return [out.detach(), x.grad, *(gradient.clone() for gradient in weights)]


@pytest.fixture
def x(rng) -> Tensor:
    return torch.randn(ROWS, 1, 6, generator=rng)


@pytest.mark.parametrize("rows", [5, ROWS])  # few go to torch's own layers
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_feed_forward(bias, threads, residual, rows, x, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    layers = [nn.Linear(6, 10, bias=bias), nn.Linear(10, 6, bias=bias)]
    assert can_fuse(x[:rows].flatten(0, 1), *layers) == (rows == ROWS)
    ours = values_and_gradients(
        lambda x, *layers: feed_forward(x, *layers, residual=residual), x[:rows], layers
    )

    def plain(x: Tensor, first: nn.Linear, second: nn.Linear) -> Tensor:
        return second(first(x).relu()) + (x if residual else 0)

    theirs = values_and_gradients(plain, x[:rows], layers)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rows", [5, ROWS])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(bias, rows, x):
    layers = [nn.Linear(6, 5, bias=bias)]
    assert can_fuse(x[:rows].flatten(0, 1), *layers) == (rows == ROWS)
    ours = values_and_gradients(linear, x[:rows], layers)
    theirs = values_and_gradients(lambda x, layer: layer(x), x[:rows], layers)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    # With something added that is no contiguous tensor, and learns as well.
    ours = values_and_gradients(lambda x, layer: linear(x, layer, x[..., 1:]), x[:rows], layers)
    theirs = values_and_gradients(lambda x, layer: layer(x) + x[..., 1:], x[:rows], layers)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("residual", [False, True])
def test_inputs_and_upper_gradients_are_left_alone(residual, x):
    """The gradient of the hidden layer is masked in place, which nobody may notice."""
    layers = nn.Linear(6, 6), nn.Linear(6, 6)
    before, x = x.clone(), x.requires_grad_()
    upper = torch.ones(ROWS, 1, 6)
    out = feed_forward(x, *layers, residual=residual)
    (once,) = torch.autograd.grad(out, x, upper, retain_graph=True)
    (twice,) = torch.autograd.grad(out, x, upper)
    assert torch.equal(once, twice)
    assert torch.equal(x, before)
    assert torch.equal(upper, torch.ones_like(upper))


def test_frozen_weights_get_no_gradient(x):
    layers = nn.Linear(6, 5).requires_grad_(False), nn.Linear(5, 6)
    feed_forward(x, *layers).sum().backward()
    assert layers[0].weight.grad is None
    assert layers[1].weight.grad is not None
    inputs = x.clone().requires_grad_()
    linear(inputs, layers[0]).sum().backward()
    assert layers[0].weight.grad is None
    assert inputs.grad is not None


class Doubled(nn.Linear):
    """Not what torch's layer is."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_who_is_sent_elsewhere(x):
    rows, layer = x.flatten(0, 1), nn.Linear(6, 6)
    assert can_fuse(rows, layer)
    assert not can_fuse(rows[:5], layer)
    assert not can_fuse(rows.double(), nn.Linear(6, 6).double())
    assert not can_fuse(rows.to("meta"), layer)
    assert not can_fuse(rows, Doubled(6, 6))
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_fuse(rows, layer)
    torch.testing.assert_close(linear(x, Doubled(6, 6)).shape, x.shape)


def test_hooks_are_called(x):
    calls = []
    layers = nn.Linear(6, 6), nn.Linear(6, 6)
    layers[1].register_forward_hook(lambda *_: calls.append(1))
    feed_forward(x, *layers)
    assert calls == [1]


@pytest.mark.parametrize("block", [FeedForward(6, 8), MultiHeadAttention(6, 2), nn.Linear(6, 6)])
def test_blocks_are_added(block, x):
    x = x.view(-1, 5, 6)  # 103 instances
    torch.testing.assert_close(add_block(block, x), x + block(x), atol=1e-5, rtol=1e-5)


def test_hooks_see_what_a_block_adds(x):
    block, seen = FeedForward(6, 8), []
    block.register_forward_hook(lambda *given: seen.append(given[-1]))
    out = add_block(block, x)
    torch.testing.assert_close(seen, [out - x], atol=1e-5, rtol=1e-5)
