"""How much room the current route has for each node: the rules behind the mask.

Each function maps a state to `[*B, N]`, negative where the visit of a node would break the
constraint. On a CPU a comparison costs as much as four subtractions, so the mask takes the smallest
of these numbers and compares once.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor

from rl4co.envs.routing.mtvrp.legs import legs_from

#: Relative slack on lengths and times: float32 sums along a route that meet a limit exactly come
#: out a few 1e-7 above it. The mask grants it once and the validity check twice: they add up in
#: different orders, and what the mask allows must never be rejected afterwards.
TOLERANCE = 1e-6
#: The same for loads. Demands are often equal fractions of the capacity, and their rounding errors
#: add up instead of cancelling out.
LOAD_TOLERANCE = 1e-5


def spare_capacity(state: Mapping[str, Tensor]) -> Tensor:
    """Negative for goods that do not fit, and for linehauls behind backhauls in class 1."""
    fetched = state["used_capacity_backhaul"]
    capacity = state["vehicle_capacity"] * (1.0 + LOAD_TOLERANCE)  # [*B, 1]
    takes_linehauls = (fetched == 0) | (state["backhaul_class"] != 1)
    room = (capacity - state["used_capacity_linehaul"]) * takes_linehauls
    return torch.minimum(
        room - state["demand_linehaul"], capacity - fetched - state["demand_backhaul"]
    )


def spare_time(state: Mapping[str, Tensor]) -> Tensor:
    """Negative for nodes out of reach in time, or from which the way back would take too long."""
    if "duration_matrix" in state:
        ride = legs_from(state, state["current_node"], "duration_matrix")
    else:
        ride = state["leg_distance"] / state["speed"]
    return state["latest_arrival"] - (state["current_time"] + ride)


def spare_distance(state: Mapping[str, Tensor]) -> Tensor:
    """Negative for nodes that make the route, with its way back unless it is open, too long."""
    left = state["distance_limit"] * (1.0 + TOLERANCE) - state["current_route_length"]  # [*B, 1]
    return left - (state["leg_distance"] + state["return_distance"])
