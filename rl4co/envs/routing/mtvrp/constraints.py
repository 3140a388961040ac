"""The rules behind the mask: quantities of a route, and the limits that they must not exceed.

All rules have one form: a quantity of the route, with what a visit adds to it, is at most the limit
of the visited node. So all quantities are stacked and a step treats them at once, which takes few
operators on a GPU. Quantities are the rows of :data:`ROWS`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor

from rl4co.envs.routing.mtvrp.legs import legs_from

#: Relative slack on lengths and times: float32 sums along a route that meet a limit exactly
#: exceed it by a few 1e-7. The mask allows it once and the validity check twice: they add up in
#: different orders, and the check must accept whatever the mask allows.
TOLERANCE = 1e-6
#: The same for loads. Demands are often equal fractions of the capacity, and their rounding errors
#: add up instead of cancelling out.
LOAD_TOLERANCE = 1e-5

#: Rows of stacked quantities: length of the route, time, largest load so far, backhauls on board,
#: and backhauls that were on board before the visit (linehauls of class 1 allow none).
LENGTH, TIME, LINEHAUL, BACKHAUL, FETCHED = ROWS = range(5)


def stack_limits(state: Mapping[str, Tensor]) -> Tensor:
    """Largest quantities `[*B, 5, N]` with which each node may be visited."""
    capacity = state["vehicle_capacity"] * (1.0 + LOAD_TOLERANCE)  # [*B, 1]
    longest = state["distance_limit"] * (1.0 + TOLERANCE) - state["return_distance"]  # [*B, N]
    goes_first = (state["backhaul_class"] == 1) & (state["demand_linehaul"] > 0)
    fetched = torch.where(goes_first, 0.0, torch.inf).to(longest.dtype)
    load = capacity.expand_as(longest)
    return torch.stack([longest, state["latest_arrival"], load, load, fetched], -2)


def stack_increments(state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """What a visit adds, `demand + leg / divisor`: demands `[*B, 5, N]`, divisors `[*B, 5, 1]`."""
    linehaul, backhaul = state["demand_linehaul"], state["demand_backhaul"]
    zero = torch.zeros_like(linehaul)
    demands = torch.stack([zero, zero, linehaul, backhaul, zero], -2)
    speed = state["speed"]  # [*B, 1]
    never = torch.full_like(speed, torch.inf)
    divisors = torch.stack([torch.ones_like(speed), speed, never, never, never], -2)
    return demands, divisors


def quantities_at_nodes(state: Mapping[str, Tensor], now: Tensor, node: Tensor) -> Tensor:
    """Quantities on arrival at each node, if it is visited next.

    Args:
        state: With the stacked constants, and `leg_distance` from the current node.
        now: Quantities when the vehicle leaves the current node `[*B, 5]`.
        node: Current node `[*B]`.

    Returns:
        `[*B, 5, N]`.
    """
    legs = state["leg_distance"].unsqueeze(-2)  # [*B, 1, N]
    added = torch.addcdiv(state["stacked_demands"], legs, state["leg_divisors"])  # [*B, 5, N]
    if "duration_matrix" in state:
        added[..., TIME, :] = legs_from(state, node, "duration_matrix")
    return added + now.unsqueeze(-1)


def exceeded(state: Mapping[str, Tensor]) -> Tensor:
    """Whether a quantity on arrival is above its limit, `[*B, 5, N]`."""
    return state["on_arrival"] > state["limits"]


def is_within_limits(state: Mapping[str, Tensor]) -> Tensor:
    """Whether a visit keeps all limits, `[*B, N]`."""
    # Faster on a CPU than comparisons of all quantities and a reduction of their results.
    return (state["limits"] - state["on_arrival"]).amin(-2) >= 0


def named_quantities(now: Tensor) -> dict[str, Tensor]:
    """State keys of the quantities `[*B, 5]` with which the vehicle leaves the current node."""
    length, time, linehaul, backhaul, _ = now.split(1, -1)  # [*B, 1] each
    return {
        "current_time": time,
        "current_route_length": length,
        "used_capacity_linehaul": linehaul,
        "used_capacity_backhaul": backhaul,
    }
