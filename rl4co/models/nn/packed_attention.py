"""Self-attention from packed projections to packed heads, with a backward pass of its own.

For few nodes and small heads most of the time of attention on a CPU goes into moving data between
layouts. Here queries, keys and values are brought into the layout of the batched products in one
copy, and their gradients are brought back in one copy; written with standard operations, it takes
about ten. Measured on a training step of the encoder with 20 nodes: 12 % faster.
"""

from __future__ import annotations

import math

from typing import Any

import torch

from torch import Tensor
from torch.autograd.function import once_differentiable


class _PackedAttention(torch.autograd.Function):
    """$\\mathrm{softmax}(q k^\\top / \\sqrt{d} + M) v$ for `qkv [B, N, 3 * D]` → `[B, N, D]`."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, num_heads: int, mask: Tensor | None) -> Tensor:
        batch, nodes, width = qkv.shape
        dim = width // (3 * num_heads)
        split = qkv.view(batch, nodes, 3, num_heads, dim).permute(2, 0, 3, 1, 4)  # [3, B, H, N, d]
        packed = split.clone(memory_format=torch.contiguous_format)  # the one copy
        packed = packed.view(3, batch * num_heads, nodes, dim)
        q, k, v = packed
        q.mul_(1.0 / math.sqrt(dim))  # rather than the scores, which are many more
        scores = torch.bmm(q, k.transpose(1, 2))
        if mask is not None:
            by_head = scores.view(batch, num_heads, nodes, nodes)
            by_head.add_(torch.where(mask, 0.0, -torch.inf).unsqueeze(1))
        weights = scores.softmax(-1)
        heads = torch.bmm(weights, v)  # [B * H, N, d]
        ctx.save_for_backward(packed, weights)
        ctx.num_heads = num_heads
        return _merge(heads, num_heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        packed, weights = ctx.saved_tensors
        q, k, v = packed
        heads, (_, nodes, dim) = ctx.num_heads, q.shape
        split = grad.view(-1, nodes, heads, dim).transpose(1, 2)  # [B, H, N, d]
        grad_heads = split.reshape(q.shape)
        grad_weights = torch.bmm(grad_heads, v.transpose(1, 2))
        grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
        grad_packed = torch.empty_like(packed)
        torch.bmm(grad_scores, k, out=grad_packed[0]).mul_(1.0 / math.sqrt(dim))
        _transposed_product(grad_scores, q, out=grad_packed[1])
        _transposed_product(weights, grad_heads, out=grad_packed[2])
        by_node = grad_packed.view(3, -1, heads, nodes, dim).permute(1, 3, 0, 2, 4)
        return by_node.reshape(-1, nodes, 3 * heads * dim), None, None


def packed_attention(qkv: Tensor, num_heads: int, mask: Tensor | None = None) -> Tensor:
    """Attention of every node to every (allowed) node.

    Args:
        qkv: Queries, keys and values side by side `[B, N, 3 * D]`, heads contiguous in each.
        num_heads: Heads H.
        mask: `[B, N, N]` or `[B, 1, N]`, True = attend; every node attends to some.

    Returns:
        Concatenated heads `[B, N, D]`.
    """
    return _PackedAttention.apply(qkv, num_heads, mask)


def _transposed_product(matrix: Tensor, narrow: Tensor, out: Tensor) -> None:
    """$A^\\top B$ of `[R, N, N]` and `[R, N, d]`; for small heads by way of $B^\\top A$."""
    if narrow.shape[-1] < 16:  # measured with heads of 8 and 56 nodes: 3 instead of 9 ms
        out.copy_(torch.bmm(narrow.mT, matrix).mT)
    else:
        torch.bmm(matrix.mT, narrow, out=out)


def _merge(heads: Tensor, num_heads: int) -> Tensor:
    """`[B * H, N, d]` → `[B, N, H * d]`."""
    rows, nodes, dim = heads.shape
    split = heads.view(rows // num_heads, num_heads, nodes, dim)
    return split.transpose(1, 2).reshape(-1, nodes, num_heads * dim)
