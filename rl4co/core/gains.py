"""Gains of covering problems: what one more facility, or one more set, would add.

Pure functions of tensors. A greedy heuristic picks the largest gain; policies read all of them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from torch import Tensor

#: States of an instance up to which items are gathered; above, a table of all items is faster.
FEW_STATES = 8


def euclidean_costs(locs: Tensor) -> Tensor:
    """Distances between all locations: `[*B, N, 2]` → `[*B, N, N]`.

    One fused operation, several times faster than differences and their norms; not by products,
    which would lose digits of short distances.
    """
    return torch.cdist(locs, locs, compute_mode="donot_use_mm_for_euclid_dist")


def location_gains(distances: Tensor, matrix: Tensor) -> Tensor:
    """How much shorter the ways of all customers get by one more facility at each location.

    $$g_i = \\sum_j \\max(d_j - c_{ij}, 0)
      = \\tfrac{1}{2} \\Big(\\sum_j d_j - \\sum_j c_{ij} + \\sum_j |d_j - c_{ij}|\\Big)$$

    The second form is one fused operation without a table of all queries, locations and customers.

    Args:
        distances: Way of each customer to its nearest facility so far, for Q states of an instance.
        matrix: Way from a facility (row) to a customer (column).

    Shapes:
        `[*B, Q, N], [*B, N, N]` → `[*B, Q, N]`
    """
    apart = torch.cdist(distances, matrix, p=1.0)  # [*B, Q, N]
    balance = distances.sum(-1, keepdim=True) - matrix.sum(-1).unsqueeze(-2)  # [*B, Q, N]
    # Rounding must not turn "nothing" into a small gain or loss.
    return (0.5 * (balance + apart)).clamp_min(0)


def coverage_gains(weights: Tensor, membership: Tensor) -> Tensor:
    """Weight that each set would add: that of its items that are not covered yet.

    Args:
        weights: Weight of each item, 0 once it is covered, for Q states of an instance.
        membership: Items of each set, counted from 1; 0 is padding.

    Shapes:
        `[*B, Q, M], [*B, N, K]` → `[*B, Q, N]`
    """
    if weights.shape[-2] <= FEW_STATES:
        padded = F.pad(weights, (1, 0))  # [*B, Q, M + 1], no weight for padding
        items = membership.long().flatten(-2).unsqueeze(-2)  # [*B, 1, N * K]
        item_weights = padded.gather(-1, items.expand(*weights.shape[:-1], -1))  # [*B, Q, N * K]
        return item_weights.unflatten(-1, membership.shape[-2:]).sum(-1)
    incidence = set_incidence(membership, weights.shape[-1], weights.dtype)  # [*B, N, M]
    return weights @ incidence.mT


def set_incidence(membership: Tensor, num_items: int, dtype: torch.dtype) -> Tensor:
    """Which items each set has, as zeros and ones: `[*B, N, K]` → `[*B, N, M]`."""
    shape = (*membership.shape[:-1], num_items + 1)  # item 0 stands for padding
    blank = torch.zeros(shape, dtype=dtype, device=membership.device)
    return blank.scatter(-1, membership.long(), 1.0)[..., 1:]
