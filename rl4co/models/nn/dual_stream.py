"""Recurrent dual-stream decoder: a sequence of nodes, each chosen in view of those before it.

Paper: Ma et al. (2023), NeuOpt, https://arxiv.org/abs/2310.18264
"""

from __future__ import annotations

import torch

from torch import Tensor, nn

from rl4co.models.nn.heads import uniform_parameters_


class DualStreamDecoder(nn.Module):
    """Two recurrent queries, each with its own view of the nodes.

    $$s_i = v_1 \\cdot \\tanh(K_1 h_i + Q_1 q + (K_3 h_i) \\odot (Q_3 q)) + v_2 \\cdot \\tanh(K_2
    h_i + Q_2 q' + (K_4 h_i) \\odot (Q_4 q'))$$

    The queries q and q' of the two streams are hidden states of GRUs. What depends on the nodes
    alone is computed once, by :meth:`prepare`.

    Args:
        embed_dim: Size D of embeddings.
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.start = nn.Linear(embed_dim, embed_dim)
        self.first_input = nn.Parameter(torch.empty(embed_dim))
        self.move_gru = nn.GRUCell(embed_dim, embed_dim)
        self.edge_gru = nn.GRUCell(embed_dim, embed_dim)
        # K_1 ... K_4, and [Q_1; Q_3], [Q_2; Q_4] of the two streams.
        self.keys = nn.Linear(embed_dim, 4 * embed_dim, bias=False)
        self.move_queries = nn.Linear(embed_dim, 2 * embed_dim, bias=False)
        self.edge_queries = nn.Linear(embed_dim, 2 * embed_dim, bias=False)
        self.move_weight = nn.Parameter(torch.empty(embed_dim))
        self.edge_weight = nn.Parameter(torch.empty(embed_dim))
        uniform_parameters_(self)

    def prepare(self, h: Tensor) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        """Keys `[B, N, D]` (four), and first inputs and hidden states `[2, B, D]`.

        Args:
            h: Embeddings `[B, N, D]`.
        """
        keys = self.keys(h).chunk(4, -1)
        hidden = self.start(h.mean(1))
        inputs = self.first_input.expand_as(hidden)
        return keys, torch.stack([inputs, inputs]), torch.stack([hidden, hidden])

    def forward(
        self, keys: tuple[Tensor, ...], inputs: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits `[B, N]` and the next hidden states `[2, B, D]`.

        Args:
            keys: From :meth:`prepare`.
            inputs: What each stream is told `[2, B, D]`.
            hidden: Hidden states `[2, B, D]`.
        """
        move = self.move_gru(inputs[0], hidden[0])  # [B, D]
        edge = self.edge_gru(inputs[1], hidden[1])
        first, third = self.move_queries(move).unsqueeze(1).chunk(2, -1)  # [B, 1, D] each
        second, fourth = self.edge_queries(edge).unsqueeze(1).chunk(2, -1)
        by_move = torch.tanh(torch.addcmul(keys[0] + first, keys[2], third)) @ self.move_weight
        by_edge = torch.tanh(torch.addcmul(keys[1] + second, keys[3], fourth)) @ self.edge_weight
        return by_move + by_edge, torch.stack([move, edge])
