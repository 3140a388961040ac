"""A pointer whose results are known already: nothing is left to compute but gradients.

A rollout without gradients computes the glimpse and the logits of every step. When the steps are
replayed with gradients, the same numbers come out again, so they are taken from the record, and
only the backward pass does any work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from torch import Tensor
from torch.autograd.function import once_differentiable

from rl4co.models.nn.blockwise_attention import (
    blockwise_attention,
    blockwise_gradients,
    can_block,
)
from rl4co.models.nn.compiled_attention import (
    can_glimpse,
    compiled_glimpse,
    glimpse_gradients,
)


class PointerRecord(NamedTuple):
    """What a pointer computed for its queries.

    Attributes:
        heads: Concatenated heads of the glimpse `[B, Q, D]`.
        logits: `[B, Q, N]`.
        log_normaliser: Logarithm of the softmax's denominator `[B, Q, H]`; None if the gradient
            does without.
    """

    heads: Tensor
    logits: Tensor
    log_normaliser: Tensor | None = None

    def as_state(self) -> dict[str, Tensor]:
        """Keys under which a trace keeps the record."""
        named = zip(_KEYS, self, strict=True)
        return {key: value for key, value in named if value is not None}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> PointerRecord | None:
        """The record in a state, if there is one."""
        heads, logits, log_normaliser = (state.get(key) for key in _KEYS)
        return None if heads is None or logits is None else cls(heads, logits, log_normaliser)


_KEYS = tuple(f"pointer_{name}" for name in PointerRecord._fields)

#: Queries of an instance and step up to which gradients are computed block by block, where they are
#: not compiled. Torch's fused kernel is faster for the thousands of queries that a replay has with
#: many solutions.
_FEW_SOLUTIONS = 4


def attention_to_record(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Attention of one step, and what its gradient needs: nothing, or log-normalisers.

    Args:
        q: `[B, H, Q, d]`.
        k: `[B, H, N, d]`.
        v: `[B, H, N, d]`.
        attn_mask: Boolean, True = attend, broadcastable to `[B, H, Q, N]`.

    Returns:
        Heads `[B, H, Q, d]`, and log-normalisers `[B, Q, H]` or None.
    """
    if can_glimpse(q, k, attn_mask):
        return compiled_glimpse(q, k, v, attn_mask)[0], None
    few = q.shape[2] <= _FEW_SOLUTIONS
    if few or can_block(q, k, attn_mask):
        heads, log_normaliser = blockwise_attention(q, k, v, attn_mask)
        return heads, None if few else log_normaliser.transpose(1, 2)
    additive = None if attn_mask is None else torch.where(attn_mask, 0.0, -torch.inf)
    heads, log_normaliser = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, False, attn_mask=additive
    )
    return heads, log_normaliser.transpose(1, 2)


class _RecordedAttention(torch.autograd.Function):
    """Attention with known heads `[B, H, Q, d]`: all that is computed is the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        heads: Tensor,
        norm: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, heads, mask, norm)
        return heads.view_as(heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, heads, mask, norm = ctx.saved_tensors
        if can_glimpse(q, k, mask):
            return (*glimpse_gradients(grad, q, k, v, mask, heads), None, None, None)
        if norm is None:
            return (*blockwise_gradients(grad, q, k, v, mask, heads), None, None, None)
        additive = None if mask is None else torch.where(mask, 0.0, -torch.inf)
        grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, heads, norm, 0.0, False, attn_mask=additive
        )
        return (*grads, None, None, None)


class _RecordedProduct(torch.autograd.Function):
    """`heads @ keys.T` with known result: `[B, Q, D], [B, N, D]` → `[B, Q, N]`."""

    @staticmethod
    def forward(ctx: Any, heads: Tensor, keys: Tensor, logits: Tensor) -> Tensor:
        ctx.save_for_backward(heads, keys)
        return logits.view_as(logits)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        heads, keys = ctx.saved_tensors
        return torch.bmm(grad, keys), torch.bmm(grad.transpose(1, 2), heads), None


def recorded_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, record: PointerRecord
) -> Tensor:
    """Concatenated heads `[B, Q, D]` of the record, differentiable in `q`, `k` and `v`.

    Arguments are those of :func:`attention_to_record`.
    """
    heads = record.heads.unflatten(-1, (q.shape[1], -1)).transpose(1, 2)  # [B, H, Q, d]
    norm = record.log_normaliser
    normaliser = None if norm is None else norm.transpose(1, 2)  # [B, H, Q]
    known = _RecordedAttention.apply(q, k, v, mask, heads, normaliser)
    return known.transpose(1, 2).flatten(2)


def recorded_product(heads: Tensor, keys: Tensor, record: PointerRecord) -> Tensor:
    """Logits `[B, Q, N]` of the record, differentiable in `heads [B, Q, D]`, `keys [B, N, D]`."""
    return _RecordedProduct.apply(heads, keys, record.logits)
