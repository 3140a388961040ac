"""Closed tours as index tensors, and the ways from one form to another.

| form | shape | meaning |
|---|---|---|
| tour | `[*B, N]` | nodes in the order of the visits |
| order | `[*B, N]` | position of every node, walking from node 0 (whose position is 0) |
| successors | `[*B, N]` | the node behind every node |

All are int64 and keep the direction in which a tour is walked. No function walks along positions:
positions come from successors by pointer doubling, in log2(N) rounds.
"""

from __future__ import annotations

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError


def order_from_successors(successors: Tensor) -> tuple[Tensor, Tensor]:
    """Positions `[*B, N]`, and whether the successors form one closed tour `[*B]`.

    Where they do not, the positions mean nothing; successors outside of 0 ... N-1 are no tour.
    """
    num_nodes = successors.shape[-1]
    # Distance to node 0, where every walk is made to end; each round doubles the known part.
    ahead = successors.clamp(0, num_nodes - 1)
    ahead = torch.cat([torch.zeros_like(ahead[..., :1]), ahead[..., 1:]], -1)  # [*B, N]
    distance = torch.ones_like(ahead)
    distance[..., 0] = 0
    for _ in range(max(num_nodes - 1, 1).bit_length()):
        distance = distance + distance.gather(-1, ahead)
        ahead = ahead.gather(-1, ahead)
    nodes = torch.arange(num_nodes, device=successors.device)
    is_permutation = (successors.sort(-1).values == nodes).all(-1)
    arrives = (ahead == 0).all(-1)
    return (num_nodes - distance) % num_nodes, is_permutation & arrives


def tour_from_order(order: Tensor) -> Tensor:
    """Nodes in the order of the visits, node 0 first."""
    return _invert(order)


def order_from_tour(tour: Tensor) -> Tensor:
    """Positions of the nodes of a tour that may begin anywhere."""
    position = _invert(tour)
    return (position - position[..., :1]) % tour.shape[-1]


def successors_from_tour(tour: Tensor) -> Tensor:
    """The node behind every node of a tour that may begin anywhere."""
    return torch.zeros_like(tour).scatter(-1, tour, tour.roll(-1, dims=-1))


def successors_from_order(order: Tensor) -> Tensor:
    """The node behind every node."""
    return successors_from_tour(tour_from_order(order))


def predecessors(successors: Tensor) -> Tensor:
    """The node in front of every node."""
    return _invert(successors)


def tour_from_visits(visits: Tensor, num_nodes: int) -> Tensor:
    """A closed tour from the actions of a constructive policy.

    Args:
        visits: All nodes, or all but the depot (node 0), from which the tour then begins:
            `[*B, N]` or `[*B, N - 1]`.
        num_nodes: N.
    """
    if visits.shape[-1] == num_nodes - 1:
        visits = torch.cat([torch.zeros_like(visits[..., :1]), visits], -1)
    if visits.shape[-1] != num_nodes:
        raise ConfigError(
            f"expected visits of all {num_nodes} nodes, with or without the depot, got "
            f"{visits.shape[-1]}; a partial solution cannot be improved"
        )
    return visits


def _invert(permutation: Tensor) -> Tensor:
    index = torch.arange(permutation.shape[-1], device=permutation.device)
    return torch.zeros_like(permutation).scatter(-1, permutation, index.expand_as(permutation))
