"""Exchanges of edges in a closed tour, by arithmetic on positions.

A tour is the position of every node, `order [*B, N]`, node 0 at 0. Neither move walks along the
tour; both keep the direction of all other edges.
"""

from __future__ import annotations

import torch

from torch import Tensor


def two_opt(order: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Reverses the path from `first` to `second`, walking forward.

    Edges (pred(first), first) and (second, succ(second)) are replaced by (pred(first), second)
    and (first, succ(second)). The path back, `two_opt(order, second, first)`, is another move; if
    `second` is in front of `first`, the complete tour is reversed, at the same cost.

    Args:
        order: Positions `[*B, N]`.
        first: Nodes `[*B]`.
        second: Nodes `[*B]`.

    Returns:
        Positions `[*B, N]`.
    """
    along = positions_from(order, first)  # [*B, N]
    length = along.gather(-1, second.unsqueeze(-1))  # [*B, 1]
    return _from_node_0(torch.where(along <= length, length - along, along))


def k_opt(order: Tensor, cuts: Tensor) -> Tensor:
    """Reverses, in place, each segment between successive cuts (Ma et al., 2023, NeuOpt).

    The tour is cut behind `a_0, a_1, ...`, which follow each other in walking direction. A cut
    right behind the one before (`a_i` = succ(a_{i-1})) ends the move, and what follows it does not
    count. With cuts at positions $0 = p_0 < p_1 < ...$ from `a_0`, the node at position t of
    segment $p_{i-1} < t \\le p_i$ moves to $p_{i-1} + 1 + p_i - t$.

    Args:
        order: Positions `[*B, N]`.
        cuts: Nodes `[*B, K]`.

    Returns:
        Positions `[*B, N]`.
    """
    along = positions_from(order, cuts[..., 0])  # [*B, N]
    at = along.gather(-1, cuts)  # [*B, K]
    active = (at[..., 1:] > at[..., :-1] + 1).long().cumprod(-1).bool().unsqueeze(-1)
    low, high = at[..., :-1, None] + 1, at[..., 1:, None]  # [*B, K - 1, 1]
    here = along.unsqueeze(-2)  # [*B, 1, N]
    inside = active & (here >= low) & (here <= high)  # [*B, K - 1, N]
    shift = torch.where(inside, low + high - 2 * here, torch.zeros_like(here)).sum(-2)
    return _from_node_0(along + shift)


def cut_mask(along: Tensor, before: Tensor, index: int) -> Tensor:
    """Nodes behind which the cut number `index` >= 1 of :func:`k_opt` may be made.

    Args:
        along: Positions from the first cut `[*B, N]`, see :func:`positions_from`.
        before: The cut before it `[*B]`.
        index: Its number; the first cut, 0, is free.

    Returns:
        `[*B, N]`, True = allowed. Never empty: where the cut before it is the last possible one,
        the node behind that (the first cut) ends the move.
    """
    num_nodes = along.shape[-1]
    at = along.gather(-1, before.unsqueeze(-1))  # [*B, 1]
    allowed = along > at
    if index == 1:
        # Both edges of the first cut's predecessor would be exchanged for themselves.
        allowed = allowed & (along <= num_nodes - 2)
    return torch.where(at == num_nodes - 1, along == 0, allowed)


def ends_move(along: Tensor, before: Tensor, cut: Tensor) -> Tensor:
    """Whether a cut is right behind the one before, which ends the move: `[*B]` each → `[*B]`."""
    distance = along.gather(-1, cut.unsqueeze(-1)) - along.gather(-1, before.unsqueeze(-1))
    return (distance % along.shape[-1] == 1).squeeze(-1)


def positions_from(order: Tensor, node: Tensor) -> Tensor:
    """Positions counted from a node `[*B]` instead of node 0: `[*B, N]` → `[*B, N]`."""
    return (order - order.gather(-1, node.unsqueeze(-1))) % order.shape[-1]


def _from_node_0(positions: Tensor) -> Tensor:
    return (positions - positions[..., :1]) % positions.shape[-1]
