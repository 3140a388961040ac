"""Multi-head attention and the pointer mechanism of the Attention Model.

Paper: Kool et al., 2019, https://arxiv.org/abs/1803.08475. Masks are True where attention (or an
action) is allowed, as everywhere in the library.
"""

from __future__ import annotations

import math

from collections.abc import Callable

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.models.nn.blockwise_attention import blockwise_attention, can_block
from rl4co.models.nn.compiled_attention import (
    can_attend,
    can_glimpse,
    compiled_attention,
    compiled_glimpse,
)
from rl4co.models.nn.dense import linear
from rl4co.models.nn.factors import Factors, apply_layer
from rl4co.models.nn.packed_attention import packed_attention
from rl4co.models.nn.recorded_attention import (
    PointerRecord,
    attention_to_record,
    recorded_attention,
    recorded_product,
)

#: (q `[B, H, Q, d]`, k `[B, H, N, d]`, v `[B, H, N, d]`, attn_mask `[B, 1, Q, N]`) → `[B, H, Q, d]`
AttentionFn = Callable[..., Tensor]


def scaled_dot_product_attention_simple(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None
) -> Tensor:
    """Attention written out, as a reference and for hardware without a fused kernel.

    $$\\mathrm{softmax}(q k^\\top / \\sqrt{d} + M) v$$

    Args:
        q: `[B, H, Q, d]`.
        k: `[B, H, N, d]`.
        v: `[B, H, N, d]`.
        attn_mask: Boolean (True = attend) or additive, broadcastable to `[B, H, Q, N]`.
    """
    batch, heads, queries, dim = q.shape
    rows = q.reshape(-1, queries, dim)  # [B * H, Q, d]
    # Without a matrix to add (beta = 0) this is a scaled product in one call.
    scores = torch.baddbmm(
        rows.new_empty(()), rows, k.reshape(-1, *k.shape[2:]).mT, beta=0, alpha=1 / math.sqrt(dim)
    ).view(batch, heads, queries, -1)  # [B, H, Q, N]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.where(attn_mask, 0.0, -torch.inf).to(scores.dtype)
        scores.add_(attn_mask)  # in place: nothing else holds the scores
    weights = scores.softmax(-1).flatten(0, 1)  # [B * H, Q, N]
    return torch.bmm(weights, v.reshape(-1, *v.shape[2:])).view(q.shape)


#: Numbers of scores beyond which plain products are used on a CPU, and up to which they are kept
#: for the gradient: in general, and by packed attention, which keeps them once.
_TINY, _FEW, _MANY = 2**14, 2**22, 2**26


def attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Attention by the fastest of three routes; arguments as above.

    On a CPU plain batched products beat torch's fused kernel for small heads (measured with heads
    of 16: 1.7 times for 20 nodes with gradients, 1.4 to 3 times without), unless there is next to
    nothing to do. With gradients they have to keep the scores, so large problems take the fused
    kernel.
    """
    if q.device.type == "cpu":
        scores = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
        if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
            if _TINY < scores <= _FEW:
                return scaled_dot_product_attention_simple(q, k, v, attn_mask)
        elif scores > _TINY and can_glimpse(q, k, attn_mask):
            return compiled_glimpse(q, k, v, attn_mask)[0]
        elif scores > _TINY and can_block(q, k, attn_mask):
            return blockwise_attention(q, k, v, attn_mask)[0]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


def _plain_pays(x: Tensor, num_heads: int) -> bool:
    """Whether self-attention over `x [B, N, D]` with gradients is faster by plain products."""
    few_enough = _count_scores(x, num_heads) <= _MANY
    return x.device.type == "cpu" and torch.is_grad_enabled() and few_enough


def _count_scores(x: Tensor, num_heads: int) -> int:
    """Scores of self-attention over `x [B, N, D]`."""
    return x.shape[0] * num_heads * x.shape[1] ** 2


class MultiHeadAttention(nn.Module):
    """Self-attention with one projection for queries, keys and values.

    Args:
        embed_dim: Embedding size D.
        num_heads: Heads H; must divide D.
        bias: Whether the projections have a bias.
        sdpa_fn: Attention function (default: :func:`attention`).

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
        self.sdpa_fn = sdpa_fn or attention

    def forward(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        residual: bool = False,
        factors: Factors | None = None,
    ) -> Tensor:
        """Attends from every node to every (allowed) node.

        Args:
            x: Nodes.
            attn_mask: What each node may attend to (default: everything).
            residual: Whether x is added to the result.
            factors: Those of x, where they are known: saves time.
        """
        plus = x if residual else None
        qkv = apply_layer(x, factors, self.Wqkv)  # [B, N, 3 * D]
        if attn_mask is None:
            return linear(self._attend(qkv, None), self.out_proj, plus)
        # A node that may attend to none gets zeros, whatever the attention function does.
        alive = attn_mask.any(-1, keepdim=True)  # [B, N or 1, 1]
        return linear(self._attend(qkv, attn_mask | ~alive) * alive, self.out_proj, plus)

    def _attend(self, qkv: Tensor, mask: Tensor | None) -> Tensor:
        """Concatenated heads: `[B, N, 3 * D], [B, N, N]` → `[B, N, D]`."""
        if self.sdpa_fn is attention and _count_scores(qkv, self.num_heads) > _TINY:
            if can_attend(qkv, self.num_heads, mask):
                return compiled_attention(qkv, self.num_heads, mask)
            if _plain_pays(qkv, self.num_heads):
                return packed_attention(qkv, self.num_heads, mask)
        split = qkv.unflatten(-1, (3, self.num_heads, -1))  # [B, N, 3, H, d]
        q, k, v = split.permute(2, 0, 3, 1, 4)  # [B, H, N, d] each
        inner = None if mask is None else mask.unsqueeze(1)  # [B, 1, N, N]
        return self.sdpa_fn(q, k, v, attn_mask=inner).transpose(1, 2).flatten(2)


class PointerAttention(nn.Module):
    """A glimpse over the nodes, then one compatibility score per node.

    $$g = W_o\\,\\mathrm{MHA}(q, K^g, V^g, M), \\qquad z_i = g^\\top K^\\ell_i / \\sqrt{D}$$

    The output projection is folded into the logit keys beforehand
    ($g^\\top K_i = (\\mathrm{heads})^\\top W_o^\\top K_i$), so no step multiplies by it.

    Args:
        embed_dim: Embedding size D.
        num_heads: Heads of the glimpse.
        mask_inner: Whether the glimpse attends to allowed nodes only.
        out_bias: Whether the output projection has a bias.
        sdpa_fn: Attention function (default: :func:`attention`).
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
        self.sdpa_fn = sdpa_fn or attention

    def split_heads(self, x: Tensor) -> Tensor:
        """`[B, N, D]` → `[B, H, N, d]`."""
        batch, nodes, dim = x.shape
        return x.view(batch, nodes, self.num_heads, dim // self.num_heads).transpose(1, 2)

    def fold_output(self, logit_key: Tensor) -> Tensor:
        """Keys (or weights that make them) `[..., D]` that score concatenated heads directly."""
        return logit_key @ (self.project_out.weight / math.sqrt(logit_key.shape[-1]))

    def fold_bias(self, logit_key: Tensor) -> Tensor | None:
        """What the bias of the output projection adds to each key's score: `[..., D]` → `[...]`."""
        bias = self.project_out.bias
        return None if bias is None else logit_key @ (bias / math.sqrt(logit_key.shape[-1]))

    def forward(
        self,
        query: Tensor,
        glimpse_key: Tensor,
        glimpse_value: Tensor,
        folded_key: Tensor,
        folded_bias: Tensor | None,
        mask: Tensor,
    ) -> Tensor:
        """Logits of all queries, not yet masked.

        Args:
            query: `[B, Q, D]`.
            glimpse_key: `[B, H, N, d]`.
            glimpse_value: `[B, H, N, d]`.
            folded_key: `[B, N, D]`, from :meth:`fold_output`.
            folded_bias: `[B, 1, N]` or None.
            mask: Allowed actions `[B, Q, N]`.

        Returns:
            `[B, Q, N]`
        """
        if self._can_point(query, glimpse_key, folded_key, mask):
            q, inner = self.split_heads(query), self._inner_mask(mask)
            _, logits = compiled_glimpse(q, glimpse_key, glimpse_value, inner, folded_key)
        else:
            heads = self.glimpse(query, glimpse_key, glimpse_value, mask)  # [B, Q, D]
            logits = torch.bmm(heads, folded_key.mT)  # [B, Q, N]
        return logits if folded_bias is None else logits + folded_bias

    def _can_point(self, query: Tensor, key: Tensor, folded_key: Tensor, mask: Tensor) -> bool:
        """Whether one compiled loop gives the logits, glimpse included."""
        given = query, key, folded_key
        silent = not (torch.is_grad_enabled() and any(x.requires_grad for x in given))
        ours = type(self).glimpse is PointerAttention.glimpse and self.sdpa_fn is attention
        same = folded_key.dtype == query.dtype and mask.shape[:2] == query.shape[:2]
        return silent and ours and same and can_glimpse(self.split_heads(query), key, mask)

    def glimpse(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Concatenated heads `[B, Q, D]` of attention over the (allowed) nodes."""
        q = self.split_heads(query)  # [B, H, Q, d]
        heads = self.sdpa_fn(q, key, value, attn_mask=self._inner_mask(mask))
        return heads.transpose(1, 2).reshape(query.shape)

    def _inner_mask(self, mask: Tensor) -> Tensor | None:
        return mask.unsqueeze(1) if self.mask_inner else None  # [B, 1, Q, N]

    def with_change(
        self,
        query: Tensor,
        glimpse_key: Tensor,
        glimpse_value: Tensor,
        folded_key: Tensor,
        folded_bias: Tensor | None,
        mask: Tensor,
        change: tuple[Tensor, Tensor, Tensor, Tensor],
    ) -> Tensor:
        """Logits `[B, Q, N]` with keys and values that differ from query to query by rank one.

        $$K_n + x_n w^K, \\qquad V_n + x_n w^V, \\qquad K^\\ell_n + x_n w^\\ell$$

        Args:
            query: As for :meth:`forward`, like all that is not listed.
            glimpse_key: See there.
            glimpse_value: See there.
            folded_key: See there.
            folded_bias: See there.
            mask: See there.
            change: Features $x$ `[B, Q, N]` and directions $w^K$, $w^V$, $w^\\ell$, `[D]` each.
        """
        x, w_key, w_value, w_logit = change
        heads = self.changed_glimpse(query, glimpse_key, glimpse_value, mask, (x, w_key, w_value))
        slope = (heads @ self.fold_output(w_logit)).unsqueeze(-1)  # [B, Q, 1]
        bias = self.fold_bias(w_logit)
        if bias is not None:
            slope = slope + bias
        logits = torch.addcmul(torch.bmm(heads, folded_key.mT), slope, x)  # [B, Q, N]
        return logits if folded_bias is None else logits + folded_bias

    def changed_glimpse(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor,
        change: tuple[Tensor, Tensor, Tensor],
    ) -> Tensor:
        """Concatenated heads `[B, Q, D]` with keys and values changed as in :meth:`with_change`."""
        x, w_key, w_value = change
        by_head = (1, self.num_heads, 1, -1)
        q = self.split_heads(query) / math.sqrt(query.shape[-1] // self.num_heads)  # [B, H, Q, d]
        slope = (q * w_key.view(by_head)).sum(-1, keepdim=True)  # [B, H, Q, 1]
        x_heads = x.unsqueeze(1)  # [B, 1, Q, N]
        scores = torch.addcmul(q @ key.mT, slope, x_heads)  # [B, H, Q, N]
        inner = self._inner_mask(mask)
        if inner is not None:
            scores = torch.where(inner, scores, -torch.inf)
        weights = scores.softmax(-1)
        share = (weights * x_heads).sum(-1, keepdim=True)  # [B, H, Q, 1]
        heads = torch.addcmul(weights @ value, share, w_value.view(by_head))
        return heads.transpose(1, 2).reshape(query.shape)

    # ---------------------------------------------------------------- record and replay

    def can_record(self, query: Tensor) -> bool:
        """Whether :meth:`record` and :meth:`replay` compute what :meth:`forward` does."""
        standard = type(self).forward is PointerAttention.forward and self.sdpa_fn is attention
        cpu = query.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        return standard and cpu and query.dtype == torch.float32 and self.project_out.bias is None

    def record(
        self,
        query: Tensor,
        glimpse_key: Tensor,
        glimpse_value: Tensor,
        folded_key: Tensor,
        mask: Tensor,
    ) -> PointerRecord:
        """Logits without gradients, and what :meth:`replay` needs; arguments as for `forward`."""
        q = self.split_heads(query)  # [B, H, Q, d]
        inner = self._inner_mask(mask)
        if self._can_point(query, glimpse_key, folded_key, mask):
            found = compiled_glimpse(q, glimpse_key, glimpse_value, inner, folded_key)
            heads, logits = found
            return PointerRecord(heads.transpose(1, 2).flatten(2), logits)
        heads, norm = attention_to_record(q, glimpse_key, glimpse_value, inner)
        heads = heads.transpose(1, 2).reshape(query.shape)  # [B, Q, D]
        logits = torch.bmm(heads, folded_key.mT)  # [B, Q, N]
        return PointerRecord(heads, logits, norm)

    def replay(
        self,
        query: Tensor,
        glimpse_key: Tensor,
        glimpse_value: Tensor,
        folded_key: Tensor,
        mask: Tensor,
        record: PointerRecord,
    ) -> Tensor:
        """The recorded logits `[B, Q, N]`, differentiable; arguments as for `forward`."""
        q = self.split_heads(query)  # [B, H, Q, d]
        inner = self._inner_mask(mask)
        heads = recorded_attention(q, glimpse_key, glimpse_value, inner, record)
        return recorded_product(heads, folded_key, record)


def check_heads(embed_dim: int, num_heads: int) -> None:
    """Raises unless the heads divide the embedding."""
    if num_heads < 1 or embed_dim % num_heads:
        raise ConfigError(
            f"expected num_heads that divides embed_dim, got {num_heads} heads for {embed_dim}"
        )
