"""Instance normalisation in compiled loops, with a backward pass of its own.

$$y_n = w \\, \\frac{x_n - \\mu}{\\sqrt{\\sigma^2 + \\epsilon}} + b$$

with the mean and the variance of each channel over the nodes of one instance that are no padding.
An instance fits the cache, so one sweep over memory is enough; torch's operation transposes first.
Measured with 64 instances of 100 nodes and 128 channels on two cores, forward and backward: 1.9
against 5.0 ms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from torch import Tensor
from torch.autograd.function import once_differentiable

from rl4co.core.compiled import can_compile, kernel, run_kernel

#: Numbers below which a second thread costs more than it brings.
_FEW = 2**17


def can_normalize(x: Tensor, weight: Tensor | None) -> bool:
    """Whether :func:`compiled_instance_norm` takes this."""
    return can_compile(x) and x.dim() == 3 and weight is not None and weight.dtype == x.dtype


def compiled_instance_norm(
    x: Tensor, real: Tensor | None, weight: Tensor, bias: Tensor, eps: float
) -> Tensor:
    """Normalises each channel over the nodes of each instance; padding becomes zero.

    Args:
        x: `[B, N, D]`.
        real: Nodes that are no padding `[B, N]` (None: all).
        weight: `[D]`.
        bias: `[D]`.
        eps: Added to the variance.
    """
    nodes = x.new_ones(x.shape[:2], dtype=torch.bool) if real is None else real
    out: Tensor = _InstanceNorm.apply(x, nodes, weight, bias, eps)
    return out


class _InstanceNorm(torch.autograd.Function):
    """The compiled loops as one differentiable operation."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, real: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> Tensor:
        given = [tensor.detach().contiguous() for tensor in (x, real, weight)]
        out = torch.empty_like(given[0])
        mean, factor = x.new_empty(2, len(x), x.shape[-1])
        arrays = [*given, bias.detach().contiguous(), mean, factor, out]
        run_kernel(_normalize, arrays, eps, threads=_threads(x))
        ctx.save_for_backward(*given, mean, factor)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        known = ctx.saved_tensors
        x, _, _, mean, _ = known
        grad_x = torch.empty_like(x)
        # Every instance has sums of its own, so that threads need not wait for each other.
        grad_weight, grad_bias = torch.empty_like(mean), torch.empty_like(mean)
        given = [*known, grad.contiguous(), grad_x, grad_weight, grad_bias]
        run_kernel(_normalize_backward, given, threads=_threads(x))
        return grad_x, None, grad_weight.sum(0), grad_bias.sum(0), None


def _threads(x: Tensor) -> int:
    return torch.get_num_threads() if x.numel() > _FEW else 1


@kernel
def _normalize(
    x: np.ndarray,
    real: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    factor: np.ndarray,
    out: np.ndarray,
    eps: float,
    start: int,
    stop: int,
) -> None:
    """Instances `start`..`stop`; keeps mean and factor `[B, D]` for the backward pass."""
    _, nodes, dim = x.shape
    for b in range(start, stop):
        share = x.dtype.type(1 / max(1, real[b].sum()))
        for d in range(dim):
            mean[b, d] = factor[b, d] = 0
        for n in range(nodes):
            if real[b, n]:
                for d in range(dim):
                    mean[b, d] += x[b, n, d]
        for d in range(dim):
            mean[b, d] *= share
        for n in range(nodes):
            if real[b, n]:
                for d in range(dim):
                    factor[b, d] += (x[b, n, d] - mean[b, d]) ** 2
        for d in range(dim):
            factor[b, d] = 1 / np.sqrt(factor[b, d] * share + eps)
        for n in range(nodes):
            if real[b, n]:
                for d in range(dim):
                    scale = factor[b, d] * weight[d]
                    out[b, n, d] = (x[b, n, d] - mean[b, d]) * scale + bias[d]
            else:
                for d in range(dim):
                    out[b, n, d] = 0


@kernel
def _normalize_backward(
    x: np.ndarray,
    real: np.ndarray,
    weight: np.ndarray,
    mean: np.ndarray,
    factor: np.ndarray,
    grad: np.ndarray,
    grad_x: np.ndarray,
    grad_weight: np.ndarray,
    grad_bias: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """Gradients of instances `start`..`stop`: `[B, N, D]`, and `[B, D]` for weight and bias."""
    _, nodes, dim = x.shape
    for b in range(start, stop):
        share = x.dtype.type(1 / max(1, real[b].sum()))
        for d in range(dim):
            grad_weight[b, d] = grad_bias[b, d] = 0
        for n in range(nodes):
            if real[b, n]:
                for d in range(dim):
                    grad_weight[b, d] += grad[b, n, d] * (x[b, n, d] - mean[b, d]) * factor[b, d]
                    grad_bias[b, d] += grad[b, n, d]
        for n in range(nodes):
            if real[b, n]:
                for d in range(dim):
                    normal = (x[b, n, d] - mean[b, d]) * factor[b, d]
                    inner = grad[b, n, d] - share * (grad_bias[b, d] + normal * grad_weight[b, d])
                    grad_x[b, n, d] = factor[b, d] * weight[d] * inner
            else:
                for d in range(dim):
                    grad_x[b, n, d] = 0
