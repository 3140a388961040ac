"""Linear layers over many rows on a CPU, with a backward pass of their own.

Torch writes the bias to every row before it multiplies, and goes over the hidden layer of a
feed-forward block once more for the ReLU. OneDNN's products add biases and residuals and apply the
ReLU while results are in registers.

Backward, each thread takes blocks of rows and makes all gradients of a block while it is in the
cache; with one operation after the other over all rows, gradients of the hidden layer would go to
memory and back four times. Measured on two cores with 10240, 26112 and 51200 rows: 10 to 14 % of
the backward pass of feed-forward blocks, 12 to 15 % of that of projections to queries, keys and
values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rl4co.core.blocks import add_up, in_blocks
from rl4co.core.compiled import can_compile

#: Rows below which calling torch's own layer takes less time.
_FEW = 512
#: Rows whose gradients are made together. Gradients of weights are summed up in wide matrices: that
#: takes 5 to 20 % less time than in tall ones.
_BLOCK = 512


def can_fuse(x: Tensor, *layers: nn.Linear) -> bool:
    """Whether this module's functions take rows `x [..., D]` and these layers."""
    return (
        x.numel() >= _FEW * x.shape[-1]
        and x.dtype == torch.float32
        and can_compile(x)
        and not torch.is_autocast_enabled("cpu")
        and bool(torch.backends.mkldnn.enabled)
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and all(_is_plain(layer) for layer in layers)
    )


def _is_plain(layer: nn.Linear) -> bool:
    """Whether calling the layer multiplies by its weight, and does nothing else."""
    hooked = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks
    same = type(layer) is nn.Linear and layer.weight.dtype == torch.float32
    return same and not hooked and layer.weight.device.type == "cpu"


def linear(x: Tensor, layer: nn.Linear, plus: Tensor | None = None) -> Tensor:
    """The layer on rows: `[..., D]` → `[..., E]`, plus a tensor of that shape."""
    if not can_fuse(x, layer):
        return layer(x) if plus is None else plus + layer(x)
    return multiply_rows(x, layer.weight, layer.bias, plus)


def multiply_rows(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, plus: Tensor | None = None
) -> Tensor:
    """$x W^\\top + b + p$ for `[..., D]` → `[..., E]`, where :func:`can_fuse` says yes."""
    added = None if plus is None else plus.flatten(0, -2)
    out: Tensor = _Linear.apply(x.flatten(0, -2), weight, bias, added)
    return out.view(*x.shape[:-1], -1)


def feed_forward(x: Tensor, first: nn.Linear, second: nn.Linear, residual: bool = False) -> Tensor:
    """Two layers with a ReLU in between: `[..., D]` → `[..., E]`, with residual plus x."""
    # On rows, because an in-place ReLU on a view would make autograd copy the hidden layer.
    rows = x.flatten(0, -2)
    if can_fuse(rows, first, second):
        layers = first.weight, first.bias, second.weight, second.bias
        out: Tensor = _FeedForward.apply(rows, *layers, residual)
    else:
        out = second(F.relu(first(rows), inplace=True))
        out = rows + out if residual else out
    return out.view(*x.shape[:-1], -1)


class _Linear(torch.autograd.Function):
    """$x W^\\top + b + p$ for `[R, D]` → `[R, E]`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, plus: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight, bias) if plus is None else _add_product(plus, x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = (saved.detach() for saved in ctx.saved_tensors)
        needs_x, needs_weight, needs_bias, needs_plus = ctx.needs_input_grad
        grad_x = torch.empty_like(x) if needs_x else None

        def work(blocks: Iterator[slice]) -> tuple[Tensor, Tensor]:
            sum_weight, sum_bias = x.new_zeros(weight.t().shape), x.new_zeros(len(weight))
            for rows in blocks:
                if needs_weight:
                    sum_weight.addmm_(x[rows].t(), grad[rows])
                if needs_bias:
                    sum_bias.add_(grad[rows].sum(0))
                if grad_x is not None:
                    torch.mm(grad[rows], weight, out=grad_x[rows])
            return sum_weight, sum_bias

        grad_weight, grad_bias = add_up(in_blocks(work, len(x), _BLOCK))
        return (
            grad_x,
            grad_weight.t() if needs_weight else None,
            grad_bias if needs_bias else None,
            grad if needs_plus else None,
        )


class _FeedForward(torch.autograd.Function):
    """$W_2 \\, \\mathrm{ReLU}(W_1 x + b_1) + b_2$ for `[R, D]` → `[R, E]`, with residual plus x."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        next_weight: Tensor,
        next_bias: Tensor | None,
        residual: bool,
    ) -> Tensor:
        hidden = _multiply(x, weight, bias, "relu")
        ctx.save_for_backward(x, weight, hidden, next_weight)
        ctx.residual = residual
        if residual:
            return _add_product(x, hidden, next_weight, next_bias)
        return _multiply(hidden, next_weight, next_bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, hidden, next_weight = (saved.detach() for saved in ctx.saved_tensors)
        grad_x = torch.empty_like(x)

        def work(blocks: Iterator[slice]) -> tuple[Tensor, ...]:
            wide = weight.t().shape, next_weight.shape
            sum_weight, sum_next = (x.new_zeros(shape) for shape in wide)
            sum_bias, sum_next_bias = (x.new_zeros(len(w)) for w in (weight, next_weight))
            room = x.new_empty(_BLOCK, len(weight))
            for rows in blocks:
                inner = room[: len(x[rows])]  # [R', M]
                torch.mm(grad[rows], next_weight, out=inner)
                torch.ops.aten.threshold_backward(inner, hidden[rows], 0, grad_input=inner)
                sum_weight.addmm_(x[rows].t(), inner)
                sum_bias.add_(inner.sum(0))
                sum_next.addmm_(grad[rows].t(), hidden[rows])
                sum_next_bias.add_(grad[rows].sum(0))
                if ctx.residual:
                    torch.addmm(grad[rows], inner, weight, out=grad_x[rows])
                else:
                    torch.mm(inner, weight, out=grad_x[rows])
            return sum_weight, sum_bias, sum_next, sum_next_bias

        sum_weight, *others = add_up(in_blocks(work, len(x), _BLOCK))
        needed = zip([sum_weight.t(), *others], ctx.needs_input_grad[1:5], strict=True)
        return grad_x, *(total if needs else None for total, needs in needed), None


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None, then: str = "none") -> Tensor:
    """$x W^\\top + b$, and what comes then."""
    return torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight, bias, then, [], "")


def _add_product(plus: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """$p + x W^\\top + b$."""
    given = x.contiguous(), plus.contiguous(), weight, bias
    return torch.ops.mkldnn._linear_pointwise.binary(*given, "add")
