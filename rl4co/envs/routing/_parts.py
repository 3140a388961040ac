"""Functions that routing problems share: depots, travel costs, visits, sums along routes.

All are pure functions of tensors with any number of leading batch axes `*B`. Node 0 is the depot
where there is one; N counts it, n does not.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from torch import Tensor

from rl4co.core.ops import (
    any_true,
    gather_points,
    get_distance,
    get_leg_costs,
    get_tour_length,
)


def locs_with_depot(instance: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`{"locs": [*B, N, 2]}` with the depot in front; empty for instances without coordinates.

    Customers' coordinates without the depot's are ignored.
    """
    if "locs" not in instance or "depot" not in instance:
        return {}
    depot = instance["depot"].unsqueeze(-2)  # [*B, 1, 2]
    return {"locs": torch.cat([depot, instance["locs"]], -2)}  # [*B, N, 2]


def pad_depot(values: Tensor, value: float = 0) -> Tensor:
    """One value per customer, with the depot's in front: `[*B, n]` → `[*B, N]`."""
    return torch.cat([torch.full_like(values[..., :1], value), values], -1)


def start_at_depot(like: Tensor) -> Tensor:
    """The depot as current node `[*B]` of a batch of which `like` is a tensor `[*B, N]`."""
    return torch.zeros(like.shape[:-1], dtype=torch.int64, device=like.device)


def unvisited(like: Tensor) -> Tensor:
    """`visited [*B, N]` before the first step."""
    return torch.zeros(like.shape, dtype=torch.bool, device=like.device)


def leg_costs(
    state: Mapping[str, Tensor], origin: Tensor, destination: Tensor, matrix: str = "cost_matrix"
) -> Tensor:
    """Cost of each leg, by the matrix of the instance if it has one, else Euclidean.

    Staying at a node costs nothing, whatever the diagonal of a matrix says.

    Args:
        state: With `locs [*B, N, 2]` or a matrix `[*B, N, N]`.
        origin: Nodes `[*B, T]`.
        destination: Nodes `[*B, T]`.
        matrix: Key of the matrix.

    Returns:
        `[*B, T]`.
    """
    if matrix in state:
        costs = get_leg_costs(state[matrix], origin, destination)
        return torch.where(origin == destination, torch.zeros_like(costs), costs)
    return get_distance(
        gather_points(state["locs"], origin), gather_points(state["locs"], destination)
    )


def tour_length(state: Mapping[str, Tensor], nodes: Tensor, matrix: str = "cost_matrix") -> Tensor:
    """Cost of the closed tour through `nodes [*B, T]` and back to the first: `[*B]`."""
    if matrix in state:
        return leg_costs(state, nodes, nodes.roll(-1, dims=-1), matrix).sum(-1)
    return get_tour_length(gather_points(state["locs"], nodes))


def depot_tour_length(state: Mapping[str, Tensor], actions: Tensor) -> Tensor:
    """Cost of all routes: from the depot along `actions [*B, T]` and back: `[*B]`."""
    return tour_length(state, torch.cat([torch.zeros_like(actions[..., :1]), actions], -1))


def count_visits(actions: Tensor, num_nodes: int) -> Tensor:
    """How often each node occurs: `[*B, T]` → `[*B, N]`."""
    visits = torch.zeros(*actions.shape[:-1], num_nodes, device=actions.device)
    return visits.scatter_add(-1, actions, torch.ones_like(actions, dtype=visits.dtype))


def leaves_depot_again(actions: Tensor) -> Tensor:
    """Whether a customer follows a visit of the depot: `[*B, T]` → `[*B]`."""
    returned = (actions == 0).cumsum(-1) > 0  # [*B, T]
    return (returned & (actions != 0)).any(-1)


def sum_along_routes(values: Tensor, actions: Tensor) -> Tensor:
    """Running sum that restarts after each visit of the depot.

    Args:
        values: One value per step `[*B, T]`; those of depot visits do not count.
        actions: Visited nodes `[*B, T]`, 0 is the depot.

    Returns:
        Sum over the steps since the last depot visit, this one included: `[*B, T]`.
    """
    values = torch.where(actions == 0, torch.zeros_like(values), values)
    total = values.cumsum(-1)
    steps = torch.arange(actions.shape[-1], device=actions.device)
    last_depot = torch.where(actions == 0, steps, -1).cummax(-1).values  # [*B, T], -1: none yet
    before = total.gather(-1, last_depot.clamp_min(0)) * (last_depot >= 0)
    return total - before


def first_customers(like: Tensor, num_starts: int) -> Tensor:
    """Customers 1 ... S as start actions `[*B, S]` of a batch with a tensor `like [*B, N]`."""
    customers = torch.arange(1, num_starts + 1, device=like.device)
    return customers.expand(*like.shape[:-1], num_starts)


def allowed_starts(mask: Tensor, num_starts: int, depot: bool = False) -> Tensor:
    """The first S starts that a mask `[*B, N]` allows: `[*B, S]`.

    An instance with fewer repeats them in order.

    Args:
        mask: Allowed first actions.
        num_starts: Number S of starts.
        depot: Whether the depot is also a start, the last one; otherwise only where no
            customer is allowed.
    """
    is_start = _is_start(mask, depot)  # [*B, N]
    order = is_start.long().argsort(stable=True, dim=-1, descending=True)  # allowed ones first
    rank = torch.arange(num_starts, device=mask.device) % is_start.sum(-1, keepdim=True)  # [*B, S]
    return (order.gather(-1, rank) + 1) % mask.shape[-1]


def count_allowed_starts(mask: Tensor, depot: bool = False) -> int:
    """Number of starts of the instance with the most of them; synchronizes with the device."""
    return int(_is_start(mask, depot).sum(-1).amax())


def _is_start(mask: Tensor, depot: bool) -> Tensor:
    """Which customers, and behind them the depot, are starts: `[*B, N]` → `[*B, N]`."""
    customers = mask[..., 1:]
    none_allowed = ~any_true(customers)  # [*B, 1]
    at_depot = none_allowed | mask[..., :1] if depot else none_allowed
    return torch.cat([customers, at_depot], -1)


def distinct_instances(
    state: Mapping[str, Tensor], axes: Mapping[str, int], guides: object = None
) -> dict[str, np.ndarray]:
    """Arrays of a batch without the copies that `batchify` made: `[S * B, ...]` → `[B, ...]`.

    Local searches prepare an instance once for all of its solutions.

    Args:
        state: State with any batch axes.
        axes: Keys to read, with the number of axes of one instance; keys that are missing are
            left out.
        guides: Arrays `[B, ...]` with one row for each distinct instance, if there are any.
    """
    arrays = {
        key: state[key].reshape(-1, *state[key].shape[-count:] if count else ()).cpu().numpy()
        for key, count in axes.items()
        if key in state
    }
    rows = len(next(iter(arrays.values())))
    if guides is not None:
        periods = [len(guides)]  # type: ignore[arg-type]
    else:
        like_first = np.ones(rows, dtype=bool)
        for array in arrays.values():
            like_first &= (array == array[:1]).reshape(rows, -1).all(1)
        periods = like_first.nonzero()[0][1:2].tolist()
    for period in periods:
        if 0 < period < rows and all(_repeats(array, period) for array in arrays.values()):
            return {key: array[:period] for key, array in arrays.items()}
    return arrays


def _repeats(array: np.ndarray, period: int) -> bool:
    """Whether all rows are copies of the first `period` ones, in the order of `batchify`."""
    if len(array) % period:
        return False
    copies = array.reshape(-1, period, *array.shape[1:])
    return bool((copies == copies[:1]).all())
