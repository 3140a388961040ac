"""Attention: over nodes in the encoder, and as a pointer in the decoder.

The attention function is an argument everywhere (`sdpa_fn`); by default it is :func:`attention`.
"""

from __future__ import annotations

import math

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co import kernels
from rl4co.core.errors import ConfigError, UnknownNameError

#: (q `[B, H, Q, d]`, k `[B, H, N, d]`, v `[B, H, N, d]`, attn_mask `[B, 1, Q, N]`) →
#: `[B, H, Q, d]`, or the name of one in :data:`ATTENTIONS`.
AttentionFn = Callable[..., Tensor] | str

#: Nodes up to which torch's fused attention for a CPU loses to single products.
FEW_NODES = 32


def scaled_dot_product_attention_simple(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None
) -> Tensor:
    """Attention written out, as a reference and for hardware without a fused kernel.

    $$\\mathrm{softmax}(q k^\\top / \\sqrt{d} + M) v$$

    Args:
        q: `[*B, Q, d]`.
        k: `[*B, N, d]`.
        v: `[*B, N, d]`.
        attn_mask: Boolean (True = attend) or additive, broadcastable to `[*B, Q, N]`.
    """
    scores = q @ k.mT / math.sqrt(q.shape[-1])  # [*B, Q, N]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = torch.where(attn_mask, scores, -torch.inf)
        else:
            scores = scores + attn_mask
    return scores.softmax(-1) @ v


def attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Torch's attention; for a few nodes on a CPU written out, which is up to three times faster.

    Arguments are those of :func:`scaled_dot_product_attention_simple`.
    """
    if q.device.type == "cpu" and k.shape[-2] <= FEW_NODES:
        return scaled_dot_product_attention_simple(q, k, v, attn_mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


#: Name → attention function, for configurations.
ATTENTIONS: Mapping[str, Callable[..., Tensor]] = {
    "fused": F.scaled_dot_product_attention,
    "simple": scaled_dot_product_attention_simple,
}


def find_attention(sdpa_fn: AttentionFn | None) -> Callable[..., Tensor]:
    """The attention function of an argument: None means :func:`attention`."""
    if isinstance(sdpa_fn, str):
        if sdpa_fn not in ATTENTIONS:
            raise UnknownNameError("attention function", sdpa_fn, ATTENTIONS)
        return ATTENTIONS[sdpa_fn]
    return sdpa_fn or attention


@kernels.standard
class MultiHeadAttention(nn.Module):
    """Self-attention with one projection for queries, keys and values.

    Args:
        embed_dim: Embedding size D.
        num_heads: Heads H; must divide D.
        bias: Whether the projections have a bias.
        sdpa_fn: Attention function, or "fused" or "simple" (default: :func:`attention`).

    Shapes:
        `x [B, N, D]`, `attn_mask [B, N, N]` or `[B, 1, N]` (True = attend) → `[B, N, D]`
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        bias: bool = True,
        sdpa_fn: AttentionFn | None = None,
    ) -> None:
        super().__init__()
        check_heads(embed_dim, num_heads)
        self.num_heads = num_heads
        self.Wqkv = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.sdpa_fn = find_attention(sdpa_fn)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """Attends from every node to every (allowed) node.

        Args:
            x: Nodes.
            attn_mask: What each node may attend to (default: everything).
        """
        q, k, v = (split_heads(part, self.num_heads) for part in self.Wqkv(x).chunk(3, -1))
        if attn_mask is None:
            return self.out_proj(merge_heads(self.sdpa_fn(q, k, v, attn_mask=None)))
        # A node that may attend to none gets zeros, whatever the attention function does.
        alive = attn_mask.any(-1, keepdim=True)  # [B, N or 1, 1]
        inner = (attn_mask | ~alive).unsqueeze(1)  # [B, 1, N, N]
        return self.out_proj(merge_heads(self.sdpa_fn(q, k, v, attn_mask=inner)) * alive)


@kernels.standard
class PointerAttention(nn.Module):
    """A glimpse over the nodes, then one compatibility score per node.

    $$g = W_o\\,\\mathrm{MHA}(q, K^g, V^g, M), \\qquad z_i = g^\\top K^\\ell_i / \\sqrt{D}$$

    Args:
        embed_dim: Embedding size D.
        num_heads: Heads of the glimpse.
        mask_inner: Whether the glimpse attends to allowed nodes only.
        out_bias: Whether the output projection has a bias.
        sdpa_fn: Attention function, or "fused" or "simple" (default: :func:`attention`).
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        mask_inner: bool = True,
        out_bias: bool = False,
        sdpa_fn: AttentionFn | None = None,
    ) -> None:
        super().__init__()
        check_heads(embed_dim, num_heads)
        self.num_heads = num_heads
        self.mask_inner = mask_inner
        self.project_out = nn.Linear(embed_dim, embed_dim, bias=out_bias)
        self.sdpa_fn = find_attention(sdpa_fn)

    def forward(
        self,
        query: Tensor,
        glimpse_key: Tensor,
        glimpse_value: Tensor,
        logit_key: Tensor,
        mask: Tensor,
        folded_key: Tensor | None = None,
    ) -> Tensor:
        """Logits of all queries, not yet masked.

        Args:
            query: `[B, Q, D]`.
            glimpse_key: `[B, H, N, d]`.
            glimpse_value: `[B, H, N, d]`.
            logit_key: `[B, N, D]`.
            mask: Allowed actions `[B, Q, N]`.
            folded_key: `[B, N, D]` from :meth:`fold`, or None.

        Returns:
            `[B, Q, N]`
        """
        if folded_key is not None:
            parts = merge_heads(glimpse_key), merge_heads(glimpse_value), folded_key
            logits = kernels.pointer.logits(query, *parts, mask, self.num_heads, self.mask_inner)
            if logits is not None:
                return logits
        heads = self.glimpse(query, glimpse_key, glimpse_value, mask)  # [B, Q, D]
        return self.point(heads, logit_key, folded_key)

    def glimpse(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Concatenated heads `[B, Q, D]` of attention over the (allowed) nodes."""
        q = split_heads(query, self.num_heads)  # [B, H, Q, d]
        inner = mask.unsqueeze(1) if self.mask_inner else None  # [B, 1, Q, N]
        return merge_heads(self.sdpa_fn(q, key, value, attn_mask=inner))

    def point(self, heads: Tensor, logit_key: Tensor, folded_key: Tensor | None = None) -> Tensor:
        """Logits `[B, Q, N]` of heads `[B, Q, D]`."""
        if folded_key is not None:
            return heads @ folded_key.mT
        return self.score(self.project_out(heads), logit_key)

    def score(self, glimpse: Tensor, logit_key: Tensor) -> Tensor:
        """Compatibility of projected heads with keys: `[*B, Q, D], [*B, N, D]` → `[*B, Q, N]`."""
        return glimpse @ logit_key.mT / math.sqrt(logit_key.shape[-1])

    def fold(self, logit_key: Tensor) -> Tensor | None:
        """Keys `[..., N, D]` that score heads without the output projection.

        As $(W_o h)^\\top K_i = h^\\top (W_o^\\top K_i)$, the projection is applied once for every
        node instead of once for every query. None if the pointer was changed in any way, or if the
        projection has a bias.
        """
        layer = self.project_out
        if not (self.sdpa_fn is attention and kernels.is_untouched(self)):
            return None
        if not isinstance(layer, nn.Linear) or layer.bias is not None:  # experts have none
            return None
        return logit_key @ (layer.weight / math.sqrt(logit_key.shape[-1]))

    def log_probs(
        self,
        query: Tensor,
        glimpse_key: Tensor,
        glimpse_value: Tensor,
        folded_key: Tensor | None,
        mask: Tensor,
        actions: Tensor,
        filters: Mapping[str, Any],
        with_entropy: bool = False,
    ) -> tuple[Tensor, Tensor | None] | None:
        """Log-probabilities and entropies `[B, Q]` by the fused kernel; None if it does not apply.

        Args:
            query: See :meth:`forward`, like all that is not listed.
            glimpse_key: See there.
            glimpse_value: See there.
            folded_key: See there.
            mask: See there.
            actions: `[B, Q]`.
            filters: `mask_logits`, `temperature` and `tanh_clipping`.
            with_entropy: Whether entropies are wanted; otherwise None.
        """
        if folded_key is None:
            return None
        keys = merge_heads(glimpse_key), merge_heads(glimpse_value), folded_key
        return kernels.pointer.log_prob(
            query, *keys, mask, actions, self.num_heads,
            mask_inner=self.mask_inner, with_entropy=with_entropy, **filters,
        )  # fmt: skip

    def changed_glimpse(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor,
        change: tuple[Tensor, Tensor, Tensor],
    ) -> Tensor:
        """Concatenated heads `[B, Q, D]` with keys and values that differ by query, by rank one.

        $$K_n + x_n w^K, \\qquad V_n + x_n w^V$$

        Args:
            query: As for :meth:`glimpse`, like all that is not listed.
            key: See there.
            value: See there.
            mask: See there.
            change: Features $x$ `[B, Q, N]` and directions $w^K$, $w^V$, `[D]` each.
        """
        x, w_key, w_value = change
        by_head = (1, self.num_heads, 1, -1)
        q = split_heads(query, self.num_heads)  # [B, H, Q, d]
        q = q / math.sqrt(q.shape[-1])
        slope = (q * w_key.view(by_head)).sum(-1, keepdim=True)  # [B, H, Q, 1]
        x_heads = x.unsqueeze(1)  # [B, 1, Q, N]
        scores = torch.addcmul(q @ key.mT, slope, x_heads)  # [B, H, Q, N]
        if self.mask_inner:
            scores = torch.where(mask.unsqueeze(1), scores, -torch.inf)
        weights = scores.softmax(-1)
        share = (weights * x_heads).sum(-1, keepdim=True)  # [B, H, Q, 1]
        return merge_heads(torch.addcmul(weights @ value, share, w_value.view(by_head)))


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """`[B, N, D]` → `[B, H, N, d]`."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def merge_heads(heads: Tensor) -> Tensor:
    """`[B, H, N, d]` → `[B, N, D]`."""
    return heads.transpose(1, 2).flatten(2)


def check_heads(embed_dim: int, num_heads: int) -> None:
    """Raises unless the heads divide the embedding."""
    if num_heads < 1 or embed_dim % num_heads:
        raise ConfigError(
            f"expected num_heads that divides embed_dim, got {num_heads} heads for {embed_dim}"
        )
