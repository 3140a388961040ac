"""Products with keys of several experts, mixed by weights, with a backward pass of their own.

Autograd would keep the scores of every expert, E times those that are wanted, and sweep memory for
each. Here nothing is kept but the factors, instances are processed in blocks that stay in the cache
(measured: twice as fast), and a replay that knows the result already computes gradients alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from torch import Tensor
from torch.autograd.function import once_differentiable

#: Entries of the queries per block on a CPU: 2 MiB of float32.
_BLOCK = 2**19


class DensePart(NamedTuple):
    """Instances that use one set of keys instead of several.

    Attributes:
        keys: Their keys `[B - B', N, D]`.
        rows: Which instances these are `[B - B']`.
        others: Which instances use the experts `[B']`.
    """

    keys: Tensor
    rows: Tensor
    others: Tensor


class _MixedProduct(torch.autograd.Function):
    """$z_n = \\sum_e w_e \\, q^\\top k_{e,n}$ for `others`, $z_n = q^\\top k_n$ for `rows`."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        keys: Tensor,
        weights: Tensor,
        known: Tensor | None,
        dense_keys: Tensor,
        rows: Tensor,
        others: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(query, keys, weights, dense_keys, rows, others)
        if known is not None:
            return known.view_as(known)
        mixing = query if others is None else query[others]
        each = torch.bmm(mixing, keys.flatten(1, 2).mT)  # [B', Q, E * N]
        each = each.unflatten(-1, keys.shape[1:3]).mul_(weights.unsqueeze(-1)).sum(2)
        if others is None:
            return each
        out = each.new_empty(*query.shape[:2], each.shape[-1])
        out[others] = each
        out[rows] = torch.bmm(query[rows], dense_keys.mT)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, weights, dense_keys, rows, others = ctx.saved_tensors
        grads = [torch.empty_like(factor) for factor in (query, keys, weights, dense_keys)]
        grad_query, grad_keys, grad_weights, grad_dense = grads
        for part, where in _blocks(query, len(keys), others):
            q, g = query[where], grad[where]  # [b, Q, ...]
            total = torch.zeros_like(q)
            for e in range(keys.shape[1]):
                weight = weights[part, :, e].unsqueeze(-1)  # [b, Q, 1]
                grad_keys[part, e] = torch.bmm((g * weight).mT, q)  # [b, N, D]
                direction = torch.bmm(g, keys[part, e])  # [b, Q, D]
                total.addcmul_(direction, weight)
                grad_weights[part, :, e] = direction.mul_(q).sum(-1)
            grad_query[where] = total
        for part, where in _blocks(query, len(dense_keys), rows):
            grad_dense[part] = torch.bmm(grad[where].mT, query[where])  # [b, N, D]
            grad_query[where] = torch.bmm(grad[where], dense_keys[part])  # [b, Q, D]
        return grad_query, grad_keys, grad_weights, None, grad_dense, None, None


def _blocks(query: Tensor, count: int, rows: Tensor | None) -> Iterator[tuple[slice, Any]]:
    """Instances in pieces that fit the cache: their place in the part, and in the whole batch."""
    entries = max(1, query.shape[1] * query.shape[2])
    size = max(1, _BLOCK // entries if query.device.type == "cpu" else count)
    if rows is not None and size == 1:  # views, where every instance is a block
        for place, row in enumerate(rows.tolist()):
            yield slice(place, place + 1), slice(row, row + 1)
        return
    for first in range(0, count, size):
        part = slice(first, first + size)
        yield part, part if rows is None else rows[part]


def mixed_product(
    query: Tensor,
    keys: Tensor,
    weights: Tensor,
    known: Tensor | None = None,
    dense: DensePart | None = None,
) -> Tensor:
    """Scores $\\sum_e w_e \\, q^\\top k_{e,n}$ of all keys.

    Args:
        query: `[B, Q, D]`.
        keys: `[B', E, N, D]`; B' is B unless there is a dense part.
        weights: `[B', Q, E]`.
        known: The result, if it has been computed before `[B, Q, N]`.
        dense: Instances without experts.

    Returns:
        `[B, Q, N]`
    """
    nobody = query.new_empty(0, dtype=torch.int64)
    rest = (query.new_empty(0), nobody, None) if dense is None else dense
    return _MixedProduct.apply(query, keys, weights, known, *rest)
