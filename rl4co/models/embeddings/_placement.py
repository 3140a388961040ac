"""Shared parts of the embeddings of the decap placement problems."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor, nn


def port_weights(state: Mapping[str, Tensor]) -> Tensor:
    """Share of each cell in the probing ports, from `probe` as one index or as a mask.

    Shapes:
        state with axes `[*B]` → `[*B, N]`, rows sum up to 1
    """
    probe, num_cells = state["probe"], state["action_mask"].shape[-1]
    if probe.dtype != torch.bool:
        cells = torch.arange(num_cells, device=probe.device)
        probe = probe == cells  # [*B, 1] and [N] -> [*B, N]
    return probe / probe.sum(-1, keepdim=True)


def port_distances(state: Mapping[str, Tensor]) -> Tensor:
    """Distance of each cell from the nearest probing port: `[B, N, 1]`."""
    locs = state["locs"]  # [B, N, 2]
    is_port = port_weights(state) > 0  # [B, N]
    distance = torch.cdist(locs, locs, compute_mode="donot_use_mm_for_euclid_dist")  # [B, N, N]
    return distance.masked_fill(~is_port.unsqueeze(-2), torch.inf).amin(-1, keepdim=True)


class NoContext(nn.Module):
    """A query that does not depend on the state: zeros.

    Which cells are taken enters through the mask, and the board through the mean of its embeddings
    (the graph context of the Attention Model).

    Shapes:
        `prepare`: `[B, N, D]` → itself; `forward`: state with axes `[B, Q]` → `[B, Q, D]`
    """

    state_keys = ()

    def prepare(self, embeddings: Tensor) -> Tensor:
        """Nothing to prepare."""
        return embeddings

    def forward(self, cache: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Zeros."""
        return cache.new_zeros(*state["action_mask"].shape[:-1], cache.shape[-1])
