"""Attention between the rows and the columns of a matrix, whose entries mix into the scores.

Paper: Kwon et al., 2021 (MatNet), https://arxiv.org/abs/2106.11113, section 3.2.
"""

from __future__ import annotations

import math

import torch

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rl4co import kernels
from rl4co.models.nn.attention import check_heads


class MixedScoreAttention(nn.Module):
    """Attention from the nodes of one side of a matrix to those of the other.

    The scores are those of scaled dot products, mixed with the entries of the matrix by a small
    network that each head has for itself.

    Args:
        embed_dim: Embedding size D.
        num_heads: Heads H; must divide D.
        mixer_hidden_dim: Units M of the mixing network.
        bias: Whether the projections have biases.

    Shapes:
        `x [B, R, D]`, `other [B, C, D]`, `entries [B, R, C]`, `mask [B, R, C]` (True = attend)
        → `[B, R, D]`
    """

    def __init__(
        self, embed_dim: int, num_heads: int, mixer_hidden_dim: int = 16, bias: bool = False
    ) -> None:
        super().__init__()
        check_heads(embed_dim, num_heads)
        self.num_heads = num_heads
        self.Wq = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.Wkv = nn.Linear(embed_dim, 2 * embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        # Bounds of the original implementation: one over the root of the number of inputs. A bias
        # of the output, which is the same for all columns, would not change the attention.
        inner, outer = math.sqrt(1 / 2), math.sqrt(1 / mixer_hidden_dim)
        heads = (num_heads, 1, 1)
        self.mix_first = nn.Parameter(_uniform(inner, mixer_hidden_dim, 2, *heads))
        self.mix_bias = nn.Parameter(_uniform(inner, mixer_hidden_dim, *heads))
        self.mix_second = nn.Parameter(_uniform(outer, mixer_hidden_dim, *heads))

    def forward(
        self, x: Tensor, other: Tensor, entries: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Attends from every node of `x` to every (allowed) node of `other`."""
        q = self._split(self.Wq(x))  # [B, H, R, d]
        k, v = (self._split(part) for part in self.Wkv(other).chunk(2, -1))  # [B, H, C, d]
        # The longer side comes last: a softmax over 5 columns is 8 times faster across 60 rows.
        turned = q.shape[-2] > k.shape[-2]
        scores = (k @ q.mT if turned else q @ k.mT) / math.sqrt(q.shape[-1])
        scores = mix_scores(scores, entries.mT if turned else entries, self._mixer())
        columns = -2 if turned else -1
        if mask is None:
            weights = scores.softmax(columns)
        else:
            # A node that may attend to none gets zeros.
            allowed = (mask.mT if turned else mask).unsqueeze(1)
            alive = allowed.any(columns, keepdim=True)
            scores = scores + torch.where(allowed | ~alive, 0.0, -torch.inf).to(scores.dtype)
            weights = scores.softmax(columns) * alive
        heads = (weights.mT if turned else weights) @ v  # [B, H, R, d]
        return self.out_proj(heads.transpose(1, 2).flatten(2))  # [B, R, D]

    def _split(self, x: Tensor) -> Tensor:
        """`[B, N, D]` → `[B, H, N, d]`."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _mixer(self) -> Tensor:
        """Weights of the mixing network side by side `[H, M, 4]`."""
        parts = (*self.mix_first.unbind(1), self.mix_bias, self.mix_second)  # [M, H, 1, 1] each
        return torch.stack([part.flatten(1).mT for part in parts], -1)


def mix_scores(scores: Tensor, entries: Tensor, mixer: Tensor) -> Tensor:
    """A small network on every pair of a score and a matrix entry.

    $$y = \\sum_m o_m \\, \\mathrm{ReLU}(a_m s + u_m c + b_m)$$

    Args:
        scores: `[B, H, R, C]`.
        entries: `[B, R, C]`.
        mixer: Factors $a, u, b$ of score, entry and one, and $o$ of the hidden unit `[H, M, 4]`.

    Returns:
        `[B, H, R, C]` in the precision of the mixer.
    """
    scores, entries = scores.to(mixer.dtype), entries.to(mixer.dtype)
    mixed = kernels.mix_scores(scores, entries, mixer)
    if mixed is not None:
        return mixed
    if torch.is_grad_enabled():  # the hidden units are made again for the backward pass
        again: Tensor = checkpoint(_mix, scores, entries, mixer, use_reentrant=False)
        return again
    return _mix(scores, entries, mixer)


def _mix(scores: Tensor, entries: Tensor, mixer: Tensor) -> Tensor:
    by_score, by_entry, bias, outer = (part[:, :, None, None] for part in mixer.unbind(-1))
    hidden = by_score * scores.unsqueeze(2) + by_entry * entries[:, None, None] + bias
    return (hidden.relu() * outer).sum(2)  # [B, H, M, R, C] -> [B, H, R, C]


def _uniform(bound: float, *shape: int) -> Tensor:
    return torch.empty(shape).uniform_(-bound, bound)
