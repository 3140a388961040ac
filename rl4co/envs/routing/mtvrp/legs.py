"""Distances and travel times between nodes: by a matrix if the instance has one, else Euclidean."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor

from rl4co.core.ops import get_leg_costs


def contiguous_columns(instance: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`{"locs": [*B, N, 2]}` with all x before all y in memory; empty without coordinates.

    Values and shape stay the same; x and y, which every step reads, are contiguous.
    """
    if "locs" not in instance:
        return {}
    return {"locs": instance["locs"].transpose(-1, -2).contiguous().transpose(-1, -2)}


def legs_from(state: Mapping[str, Tensor], node: Tensor, matrix: str = "cost_matrix") -> Tensor:
    """Distances from one node to all.

    Args:
        state: With `locs [*B, N, 2]` or a matrix `[*B, N, N]`.
        node: `[*B]`.
        matrix: Key of the matrix.

    Returns:
        `[*B, N]`.
    """
    if matrix in state:
        table = state[matrix]
        row = node[..., None, None].expand(*node.shape, 1, table.shape[-1])  # [*B, 1, N]
        return table.gather(-2, row).squeeze(-2)
    columns = state["locs"].transpose(-1, -2)  # [*B, 2, N]
    here = columns.gather(-1, node[..., None, None].expand(*node.shape, 2, 1))  # [*B, 2, 1]
    return _hypotenuse(*(columns - here).unbind(-2))


def legs_to_depot(state: Mapping[str, Tensor], matrix: str = "cost_matrix") -> Tensor:
    """Distances from all nodes to the depot `[*B, N]`."""
    if matrix in state:
        return state[matrix][..., 0]
    x, y = state["locs"].unbind(-1)  # [*B, N] each
    return _hypotenuse(x - x[..., :1], y - y[..., :1])


def legs_along(
    state: Mapping[str, Tensor], actions: Tensor, matrix: str = "cost_matrix"
) -> tuple[Tensor, Tensor]:
    """Legs of a solution, from the depot to the first node and back from the last.

    Returns:
        Distances and destinations, `[*B, T + 1]` each.
    """
    depot = torch.zeros_like(actions[..., :1])
    path = torch.cat([depot, actions, depot], -1)  # [*B, T + 2]
    origin, destination = path[..., :-1], path[..., 1:]
    if matrix in state:
        return get_leg_costs(state[matrix], origin, destination), destination
    dx, dy = (x.gather(-1, path).diff(dim=-1) for x in state["locs"].unbind(-1))
    return _hypotenuse(dx, dy), destination


def _hypotenuse(dx: Tensor, dy: Tensor) -> Tensor:
    """Several times faster on a CPU than the norm over an axis of two."""
    return torch.addcmul(dx * dx, dy, dy).sqrt()
