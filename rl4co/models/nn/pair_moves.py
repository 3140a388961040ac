"""Which pair of nodes to take out of a tour, and where to put it in again.

Paper: Ma et al. (2022), N2S, https://arxiv.org/abs/2204.11399
"""

from __future__ import annotations

import torch

from torch import Tensor, nn

from rl4co.models.nn.dual_aspect import PairScores
from rl4co.models.nn.heads import HeadProjection
from rl4co.models.nn.linear_stack import LinearStack, PairStack

#: Moves whose pairs are told one by one.
RECENT = 3


class NodePairRemoval(nn.Module):
    """Logits of taking out each pair of nodes.

    How well a node i fits between its predecessor p and s, the second node after it, is
    $\\lambda_i = q_p k_i + q_i k_s - q_p k_s$ in every head. A small network looks at both nodes of
    a pair, at whether the pair was moved in each of the last three moves, and at how often lately.

    Args:
        embed_dim: Size D of embeddings.
        num_heads: Heads H.
        hidden: Width of the network.
    """

    def __init__(self, embed_dim: int, num_heads: int, hidden: int = 32) -> None:
        super().__init__()
        self.query = HeadProjection(embed_dim, num_heads, embed_dim)
        self.key = HeadProjection(embed_dim, num_heads, embed_dim)
        self.network = LinearStack([2 * num_heads + RECENT + 1, hidden, hidden, 1])

    def forward(
        self, h: Tensor, before: Tensor, behind: Tensor, recent: Tensor, frequency: Tensor
    ) -> Tensor:
        """Logits `[B, m]`.

        Args:
            h: Embeddings `[B, N, D]`; nodes 1 to m and m + 1 to 2m form the pairs.
            before: Predecessors `[B, N]`.
            behind: Second nodes after each node `[B, N]`.
            recent: Whether each pair was moved in the last three moves, oldest first `[B, m, 3]`.
            frequency: How often each pair was moved lately `[B, m]`.
        """
        size = h.shape[1]
        scores = (self.query(h) @ self.key(h).transpose(-2, -1)).flatten(-2)  # [B, H, N * N]
        node = torch.arange(size, device=h.device)
        pairs = torch.stack([before * size + node, node * size + behind, before * size + behind], 1)
        picked = scores.gather(-1, pairs.flatten(1).unsqueeze(1).expand(-1, scores.shape[1], -1))
        into, out_of, across = picked.chunk(3, -1)  # [B, H, N] each
        fit = into + out_of - across
        first, second = fit[..., 1:].transpose(1, 2).chunk(2, 1)  # [B, m, H] each
        features = torch.cat([first, second, recent, frequency.unsqueeze(-1)], -1)
        return self.network(features).squeeze(-1)


class NodePairReinsertion(nn.Module):
    """Logits of inserting the first node of a pair after j and the second after k.

    Both nodes are compared with every place by the node before it and the node after it; a
    small network looks at the scores of both.

    Args:
        embed_dim: Size D of embeddings.
        num_heads: Heads H.
        hidden: Width of the network.
    """

    def __init__(self, embed_dim: int, num_heads: int, hidden: int = 32) -> None:
        super().__init__()
        self.in_front = PairScores(embed_dim, num_heads, scaled=False)
        self.behind = PairScores(embed_dim, num_heads, scaled=False)
        self.network = PairStack([4 * num_heads, hidden, hidden, 1])

    def forward(self, h: Tensor, pair: Tensor, successors: Tensor) -> Tensor:
        """Logits `[B, N, N]` (j, k).

        Args:
            h: Embeddings `[B, N, D]`.
            pair: Both nodes `[B, 2]`.
            successors: The node after every node `[B, N]`.
        """
        nodes = h.gather(1, pair.unsqueeze(-1).expand(-1, -1, h.shape[-1]))  # [B, 2, D]
        front = self.in_front(nodes, h)  # [B, H, 2, N]
        back = self.behind(nodes, h)
        back = back.gather(-1, successors[:, None, None].expand_as(back))
        scores = torch.cat([front, back], 1).permute(2, 0, 3, 1)  # [2, B, N, 2H]
        return self.network(scores[0], scores[1]).squeeze(-1)
