"""Instance normalisation: compiled loops against tensor operations."""

from __future__ import annotations

import pytest
import torch

from torch import Tensor

from rl4co.models.nn import instance_norm, masked_norm, norm
from rl4co.models.nn.masked_norm import MaskedInstanceNorm
from rl4co.models.nn.norm import InstanceNorm


def outputs_and_gradients(layer: torch.nn.Module, x: Tensor, real: Tensor | None) -> list[Tensor]:
    """What comes out, and the gradients of input and weights."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    out = layer(x) if real is None else layer(x, real)
    (out * torch.linspace(-1.0, 1.0, out.numel(), dtype=x.dtype).view_as(out)).sum().backward()
    return [out.detach(), x.grad, *(weight.grad.clone() for weight in layer.parameters())]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_is_that_of_tensors(monkeypatch, dtype, masked, threads):
    monkeypatch.setattr(instance_norm, "_FEW", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    layer = (MaskedInstanceNorm if masked else InstanceNorm)(5, affine=True).to(dtype)
    torch.nn.init.uniform_(layer.weight)
    torch.nn.init.uniform_(layer.bias)
    x = torch.randn(4, 7, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    real = torch.arange(7) < torch.tensor([[7], [3], [5], [1]]) if masked else None
    ours = outputs_and_gradients(layer, x, real)
    for module in (norm, masked_norm):
        monkeypatch.setattr(module, "can_normalize", lambda *_: False)
    theirs = outputs_and_gradients(layer, x, real)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_input_of_any_layout_is_left_alone():
    layer = InstanceNorm(5, affine=True)
    x = torch.randn(2, 5, 6).mT  # [2, 6, 5], not contiguous
    before = x.clone()
    torch.testing.assert_close(layer(x), layer(x.contiguous()))
    assert torch.equal(x, before)


def test_a_single_instance_without_batch():
    layer = InstanceNorm(5, affine=True)
    x = torch.randn(6, 5)
    torch.testing.assert_close(layer(x), layer(x.unsqueeze(0)).squeeze(0))


def test_other_precisions_take_tensor_operations():
    layer = InstanceNorm(4, affine=True)
    assert instance_norm.can_normalize(torch.rand(1, 2, 4), layer.weight)
    assert not instance_norm.can_normalize(torch.rand(1, 2, 4).bfloat16(), layer.weight)
    assert not instance_norm.can_normalize(torch.rand(1, 2, 4), None)
