"""Travel times, and the times at which the stops of given routes begin.

Pure functions of tensors with any number of leading batch axes `*B`. Travel times come from the
`duration_matrix` of an instance, else from its `cost_matrix`, else from its coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor

from rl4co.core.ops import get_leg_costs


def times_from(state: Mapping[str, Tensor], node: Tensor) -> Tensor:
    """Travel times from one node to all others: `node [*B, 1]` → `[*B, N]`."""
    key = time_matrix(state)
    if key is not None:
        matrix = state[key]
        row = node.unsqueeze(-1).expand(*node.shape, matrix.shape[-1])  # [*B, 1, N]
        return matrix.gather(-2, row).squeeze(-2)
    x, y = state["locs"].unbind(-1)  # [*B, N]
    return _hypotenuse(x - x.gather(-1, node), y - y.gather(-1, node))


def times_to_depot(state: Mapping[str, Tensor]) -> Tensor:
    """Travel times from all nodes to the depot `[*B, N]`."""
    key = time_matrix(state)
    if key is not None:
        return state[key][..., 0]
    return times_from(state, torch.zeros_like(state["locs"][..., 0, :1], dtype=torch.int64))


def time_matrix(state: Mapping[str, Tensor]) -> str | None:
    """Key of the matrix that gives travel times; None if coordinates do."""
    return next((key for key in ("duration_matrix", "cost_matrix") if key in state), None)


def leg_times(state: Mapping[str, Tensor], stops: Tensor) -> Tensor:
    """Travel times from the depot to the first stop and on, in float64: `[*B, T]` → `[*B, T]`."""
    key = time_matrix(state)
    if key is None:
        x, y = (c.gather(-1, stops) for c in state["locs"].double().unbind(-1))  # [*B, T]
        depot_x, depot_y = state["locs"][..., 0, :].double().unbind(-1)  # [*B]
        return _hypotenuse(
            x.diff(dim=-1, prepend=depot_x.unsqueeze(-1)),
            y.diff(dim=-1, prepend=depot_y.unsqueeze(-1)),
        )
    origin = previous_stops(stops)
    times = get_leg_costs(state[key], origin, stops).double()
    # Staying at the depot takes no time, whatever the diagonal of a matrix says.
    return torch.where(origin == stops, torch.zeros_like(times), times)


def previous_stops(stops: Tensor) -> Tensor:
    """Where vehicles come from, the depot at first: `[*B, T]` → `[*B, T]`."""
    return torch.cat([torch.zeros_like(stops[..., :1]), stops[..., :-1]], -1)


def service_starts(state: Mapping[str, Tensor], stops: Tensor) -> Tensor:
    """When the service at each stop begins: on arrival, or when the time window opens.

    With $C_k$ the driving and service times added up until stop k, and $e_j$ the opening of a
    window, stop k of a route begins at $C_k + \\max_{j \\le k} (e_j - C_j)$, so all routes
    follow from one running maximum instead of a loop over stops.

    Args:
        state: With `durations [*B, N]`, `time_windows [*B, N, 2]` and travel times.
        stops: Visited nodes `[*B, T]`, 0 is the depot; a route starts there when it opens.

    Returns:
        Times in float64 `[*B, T]`; at the depot, the time of the return.
    """
    origin = previous_stops(stops)
    move = state["durations"].double().gather(-1, origin) + leg_times(state, stops)
    elapsed = move.cumsum(-1)  # C, over all routes
    ready = state["time_windows"][..., 0].double()  # [*B, N]
    leaves_depot = origin == 0
    bound = ready.gather(-1, stops) - elapsed
    # A route starts when the depot opens, regardless of earlier routes.
    start = ready[..., :1] - (elapsed - move)
    bound = torch.where(leaves_depot, torch.maximum(bound, start), bound)
    # Lifting each route above all earlier ones restarts the running maximum.
    lift = leaves_depot.cumsum(-1) * (1 + bound.amax(-1, True) - bound.amin(-1, True))
    return elapsed + (bound + lift).cummax(-1).values - lift


def _hypotenuse(dx: Tensor, dy: Tensor) -> Tensor:
    """Lengths from differences: several times faster than the norm of vectors of length two."""
    return torch.addcmul(dx * dx, dy, dy).sqrt()
