"""Embeddings of DevFormer: cells know their kind and their distance, queries the last decap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.models.embeddings._placement import port_distances, port_weights


class DevFormerInitEmbedding(nn.Module):
    """Node embedding of DevFormer: place, kind and distance from the nearest probing port.

    $$h = W_x (x, y, \\text{kind}) + W_d \\min_p d_p$$

    The kind is 0 for free cells, 1 for keep-outs and 2 for probing ports.

    Shapes:
        state → `[B, N, D]`
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.init_embed = nn.Linear(3, embed_dim)
        self.init_embed_probe_distance = nn.Linear(1, embed_dim)

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Node embeddings."""
        locs = state["locs"]
        kind = state["keepout"].to(locs.dtype) + (port_weights(state) > 0)  # [B, N]
        features = torch.cat([locs, kind.unsqueeze(-1)], -1)  # [B, N, 3]
        return self.init_embed(features) + self.init_embed_probe_distance(port_distances(state))


class DevFormerCache(NamedTuple):
    """What is computed once per instance.

    Attributes:
        ports: What each cell would add to the query as the only port `[B, N, D]`.
        placed: What each cell adds as the last decap, row `b * N + n`, and in the last row what
            the placeholder adds `[B * N + 1, D]`.
    """

    ports: Tensor
    placed: Tensor


class DevFormerContext(nn.Module):
    """Query of DevFormer: the probing ports and the decap that was placed last.

    $$q_t = \\frac{1}{P} \\sum_p \\mathrm{MLP}_1(h_p) + \\mathrm{MLP}_2(h_{a_{t-1}})$$

    In the first step a learned placeholder replaces the last decap.

    Args:
        embed_dim: Embedding size D.

    Shapes:
        `prepare`: `[B, N, D]` → cache; `forward`: state with axes `[B, Q]` → `[B, Q, D]`
    """

    state_keys = ("probe", "current_node", "i")

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.embed_ports = _two_layers(embed_dim)
        self.embed_placed = _two_layers(embed_dim)
        self.placeholder = nn.Parameter(torch.empty(embed_dim).uniform_(-1, 1))

    def prepare(self, embeddings: Tensor) -> DevFormerCache:
        """Both contributions of all cells."""
        rows = torch.cat([embeddings.flatten(0, 1), self.placeholder.unsqueeze(0)])
        return DevFormerCache(self.embed_ports(embeddings), self.embed_placed(rows))

    def forward(self, cache: DevFormerCache, state: Mapping[str, Tensor]) -> Tensor:
        """Queries `[B, Q, D]`."""
        batch, num_cells, _ = cache.ports.shape
        ports = port_weights(state).to(cache.ports.dtype) @ cache.ports  # [B, Q, D]
        first = torch.arange(batch, device=ports.device).unsqueeze(-1) * num_cells  # [B, 1]
        placed = first + state["current_node"]  # [B, Q]
        blank = len(cache.placed) - 1
        row = torch.where(state["i"].squeeze(-1) == 0, blank, placed)
        return ports + F.embedding(row, cache.placed)


def _two_layers(dim: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
