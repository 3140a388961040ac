"""Additive attention, the scoring of Pointer Networks, with a custom backward pass.

Paper: Bahdanau et al., 2015, https://arxiv.org/abs/1409.0473. Every pair of a query and a node has
a vector of D hyperbolic tangents, of which only a weighted sum is wanted. Written with standard
operations, autograd would keep all of them: for 50 steps over 50 nodes 1.3 MB per instance. Here
none is kept; pairs are processed in blocks that stay in the cache, and again in the backward pass.
"""

from __future__ import annotations

import math

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from torch import Tensor, nn
from torch.autograd.function import once_differentiable

#: Numbers per block: 2 MiB of float32 on a CPU; elsewhere as much as memory bears easily.
_CPU_BLOCK, _BLOCK = 2**19, 2**26
#: Beyond this float32 cannot represent the exponential of twice the number, so it is clipped.
_LARGE = 40.0


class _AdditiveScores(torch.autograd.Function):
    """$u_{qn} = v^\\top \\tanh(q_q + e_n)$.

    By $\\tanh(q + e) = 1 - 2r$ with $r = 1 / (1 + e^{2q} e^{2e})$ the exponentials are those of
    queries and keys, not of their pairs, for each of which a product and a division are left.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, v: Tensor, exp_key: Tensor) -> Tensor:
        ctx.save_for_backward(query, exp_key, v)
        exp_query = _exponential(query)
        scores = query.new_empty(*query.shape[:2], key.shape[1])  # [B, Q, N]
        for rows, columns in _blocks(query, key):
            r = _reciprocals(exp_query[rows, columns], exp_key[rows])
            scores[rows, columns] = r @ v
        return scores.mul_(-2.0).add_(v.sum())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, exp_key, v = ctx.saved_tensors
        exp_query = _exponential(query)
        grad_query, grad_key = torch.empty_like(query), torch.zeros_like(exp_key)
        weighted = torch.zeros_like(v)  # sum of g r, [D]
        for rows, columns in _blocks(query, exp_key):
            r, g = _reciprocals(exp_query[rows, columns], exp_key[rows]), grad[rows, columns]
            weighted += g.reshape(1, -1).mm(r.flatten(0, 2)).squeeze(0)
            # d tanh / d (q + e) = 1 - tanh² = 4 (r - r²)
            slope = r.addcmul_(r, r, value=-1.0).mul_(g.unsqueeze(-1))  # [B, Q, N, D]
            torch.sum(slope, 2, out=grad_query[rows, columns])
            grad_key[rows] += slope.sum(1)
        v4 = 4.0 * v
        return grad_query.mul_(v4), grad_key.mul_(v4), grad.sum() - 2.0 * weighted, None


class AdditiveKeys(NamedTuple):
    """Keys of the nodes, prepared for any number of queries.

    Attributes:
        keys: $e$ `[B, N, D]`.
        exponential: $e^{2e}$, without gradients `[B, N, D]`.
    """

    keys: Tensor
    exponential: Tensor


class AdditiveAttention(nn.Module):
    """Scores of nodes for queries.

    $$u_{qn} = v^\\top \\tanh(W_q q_q + b_q + e_n), \\qquad e_n = W_r r_n + b_r$$

    Args:
        dim: Size D of queries and nodes.

    Shapes:
        `query [B, Q, D]`, keys of `[B, N, D]` (from :meth:`project`) → `[B, Q, N]`
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.project_query = nn.Linear(dim, dim)
        self.project_reference = nn.Linear(dim, dim)
        bound = 1.0 / math.sqrt(dim)
        self.v = nn.Parameter(torch.empty(dim).uniform_(-bound, bound))

    def project(self, reference: Tensor) -> AdditiveKeys:
        """Keys, once per instance: `[B, N, D]` → two times `[B, N, D]`."""
        keys = self._precise(self.project_reference(reference))
        return AdditiveKeys(keys, _exponential(keys.detach()))

    def forward(self, query: Tensor, keys: AdditiveKeys) -> Tensor:
        """Scores, neither clipped nor masked."""
        projected, v = self._precise(self.project_query(query)), self._precise(self.v)
        return _AdditiveScores.apply(projected, keys.keys, v, keys.exponential)

    def _precise(self, x: Tensor) -> Tensor:
        """In float32 or better: half precision cannot represent the exponentials."""
        return x.to(torch.promote_types(self.v.dtype, torch.float32))


def _exponential(x: Tensor) -> Tensor:
    """$e^{2x}$ within a range whose products with each other are never zero times infinity."""
    return (2.0 * x.clamp(-_LARGE, _LARGE)).exp_()


def _reciprocals(exp_query: Tensor, exp_key: Tensor) -> Tensor:
    """$1 / (1 + e^{2q} e^{2e})$ of all pairs: `[B, Q, D], [B, N, D]` → `[B, Q, N, D]`."""
    one = exp_query.new_ones(())
    return torch.addcmul(one, exp_query.unsqueeze(2), exp_key.unsqueeze(1)).reciprocal_()


def _blocks(query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice]]:
    """Slices of instances and queries whose pairs fit a block."""
    (batch, queries, dim), nodes = query.shape, key.shape[1]
    size = _CPU_BLOCK if query.device.type == "cpu" else _BLOCK
    wide = max(1, min(queries, size // (nodes * dim)))
    tall = max(1, size // (queries * nodes * dim)) if wide == queries else 1
    for row in range(0, batch, tall):
        for column in range(0, queries, wide):
            yield slice(row, row + tall), slice(column, column + wide)
