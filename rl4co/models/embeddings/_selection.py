"""Shared parts of the embeddings of problems that choose k of N candidates.

A policy sees at every step what each candidate would add (its gain), through keys and values, and
what is still uncovered, through the query.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co import kernels
from rl4co.models.embeddings._base import LinearDynamicEmbedding


class SelectionContext(nn.Module):
    """Query from what is uncovered, what is chosen and how many choices are left.

    $$q = W \\Big[\\sum_n u_n h_n, \\; \\tfrac{1}{t} \\sum_{s \\le t} h_{a_s}, \\;
      \\tfrac{k - t}{k}\\Big]$$

    with the share $u_n$ of node n in what is uncovered.

    Args:
        embed_dim: Embedding size D.

    Shapes:
        `prepare`: `[B, N, D]` → `[B, N, 2, D]` or itself; `forward`: state with axes `[B, Q]` →
        `[B, Q, D]`
    """

    #: State keys that are read, recorded for the replay.
    state_keys: tuple[str, ...]

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.project_context = nn.Linear(2 * embed_dim + 1, embed_dim, bias=False)

    def uncovered(self, state: Mapping[str, Tensor]) -> Tensor:
        """How much is uncovered at each node, not negative: `[B, Q, N]`."""
        raise NotImplementedError

    def num_to_choose(self, state: Mapping[str, Tensor]) -> Tensor:
        """Number k of choices: `[B, Q, 1]`."""
        raise NotImplementedError

    def prepare(self, embeddings: Tensor) -> Tensor:
        """What each node adds to the query as an uncovered and as a chosen one, in one product.

        The embeddings as they are if the projection is not an ordinary one.
        """
        if not kernels.may_replace(self.project_context):
            return embeddings
        dim = embeddings.shape[-1]
        weight = self.project_context.weight[:, : 2 * dim].unflatten(1, (2, dim))  # [D, 2, D]
        return F.linear(embeddings, weight.transpose(0, 1).flatten(0, 1)).unflatten(-1, (2, dim))

    def forward(self, cache: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Queries `[B, Q, D]`."""
        share = F.normalize(self.uncovered(state), p=1.0, dim=-1)  # [B, Q, N]
        taken = state["i"].to(share.dtype)  # [B, Q, 1]
        chosen = state["chosen"].to(share.dtype) / taken.clamp_min(1.0)  # [B, Q, N]
        left = 1.0 - taken / self.num_to_choose(state).to(share.dtype)  # [B, Q, 1]
        if cache.dim() == 3:  # the embeddings themselves
            parts = [torch.bmm(share, cache), torch.bmm(chosen, cache), left]
            return self.project_context(torch.cat(parts, -1))
        query = torch.bmm(share, cache[:, :, 0]) + torch.bmm(chosen, cache[:, :, 1])
        return torch.addcmul(query, left, self.project_context.weight[:, -1])


class GainEmbedding(LinearDynamicEmbedding):
    """Keys and values change with what each candidate would add at this step.

    Gains shrink from step to step, so they are standardised over the candidates.
    """

    def gains(self, state: Mapping[str, Tensor]) -> Tensor:
        """What each candidate would add: `[B, Q, N]`."""
        raise NotImplementedError

    def features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Gains with mean 0 and standard deviation 1 over the candidates `[B, Q, N]`."""
        gains = self.gains(state)
        centred = gains - gains.mean(-1, keepdim=True)
        spread = centred.square().mean(-1, keepdim=True).sqrt()
        scale = gains.abs().amax(-1, keepdim=True)
        # Differences as small as rounding are none.
        return torch.where(spread > 1e-5 * scale, centred / spread, torch.zeros_like(centred))
