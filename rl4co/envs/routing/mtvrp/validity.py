"""Checks of solutions and instances.

Solutions are checked by their actions alone, in float64 and independently of the mask and its
state: loads from both ends of a route, times and lengths by simulation.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor

from rl4co.envs.routing._parts import count_visits, sum_along_routes
from rl4co.envs.routing.mtvrp.constraints import (
    LENGTH,
    LOAD_TOLERANCE,
    TIME,
    TOLERANCE,
    exceeded,
)
from rl4co.envs.routing.mtvrp.legs import legs_along

MATRICES = ("cost_matrix", "duration_matrix")


def find_violations(state: Mapping[str, Tensor], actions: Tensor) -> dict[str, Tensor]:
    """Constraint → `[*B]`, True where a solution `actions [*B, T]` breaks it."""
    visits = count_visits(actions, state["demand_linehaul"].shape[-1])
    too_late, too_long = _simulate(state, actions)
    return {
        "every customer is visited exactly once": (visits[..., 1:] != 1).any(-1),
        "no load exceeds the vehicle capacity": _overloaded(state, actions),
        "linehauls come before backhauls (backhaul_class 1)": _out_of_order(state, actions),
        "service begins and closed routes end within the time windows": too_late,
        "no route is longer than the distance limit": too_long,
    }


def _overloaded(state: Mapping[str, Tensor], actions: Tensor) -> Tensor:
    """Whether a vehicle carries too much anywhere, `[*B]`."""
    linehaul = state["demand_linehaul"].gather(-1, actions).double()  # [*B, T]
    backhaul = state["demand_backhaul"].gather(-1, actions).double()
    fetched = sum_along_routes(backhaul, actions)  # up to and including this stop
    pending = sum_along_routes(linehaul.flip(-1), actions.flip(-1)).flip(-1)  # from this stop on
    load = fetched + pending - torch.minimum(linehaul, backhaul)  # before or after the stop
    capacity = state["vehicle_capacity"].double() * (1.0 + 2.0 * LOAD_TOLERANCE)
    return (load > capacity).any(-1)


def _out_of_order(state: Mapping[str, Tensor], actions: Tensor) -> Tensor:
    """Whether a linehaul follows a backhaul on a route where it must not, `[*B]`."""
    is_backhaul = (state["demand_backhaul"].gather(-1, actions) > 0).double()  # [*B, T]
    is_linehaul = state["demand_linehaul"].gather(-1, actions) > 0
    backhauls_before = sum_along_routes(is_backhaul, actions) - is_backhaul
    strict = state["backhaul_class"] == 1  # [*B, 1]
    return (strict & is_linehaul & (backhauls_before > 0)).any(-1)


def _simulate(state: Mapping[str, Tensor], actions: Tensor) -> tuple[Tensor, Tensor]:
    """Whether a route is too late or too long, the last way back included: `[*B]` each."""
    legs, nodes = legs_along(state, actions)  # [*B, T + 1] each
    legs = legs.double()
    if "duration_matrix" in state:
        rides = legs_along(state, actions, "duration_matrix")[0].double()
    else:
        rides = legs / state["speed"].double()
    opening, closing = (
        edge.gather(-1, nodes).double() for edge in state["time_windows"].unbind(-1)
    )  # [*B, T + 1] each
    service = state["service_time"].gather(-1, nodes).double()
    at_customer = nodes != 0

    starts, lengths = [], []
    time = length = torch.zeros_like(legs[..., 0])  # [*B]
    # Steps first, so that each is contiguous: [T + 1, *B].
    columns = (x.movedim(-1, 0).contiguous() for x in (at_customer, legs, rides, opening, service))
    for on_route, leg, ride, opens, serves in zip(*columns, strict=True):
        time, length = torch.maximum(time + ride, opens), length + leg
        starts.append(time)
        lengths.append(length)
        time, length = (time + serves) * on_route, length * on_route
    slack = 1.0 + 2.0 * TOLERANCE
    too_late = torch.stack(starts).movedim(0, -1) > closing * slack  # [*B, T + 1]
    too_long = torch.stack(lengths).movedim(0, -1) > state["distance_limit"].double() * slack
    # Open routes have no way back.
    counts = at_customer | ~state["open_route"]
    return (counts & too_late).any(-1), (counts & too_long).any(-1)


def find_faults(instance: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rule → `[*B]`, True where an instance breaks it.

    Args:
        instance: Instance of the right keys and shapes.
        state: Its initial state.
    """
    linehaul, backhaul = instance["demand_linehaul"], instance["demand_backhaul"]  # [*B, N]
    service, capacity = instance["service_time"], instance["vehicle_capacity"]
    opening, closing = instance["time_windows"].unbind(-1)  # [*B, N] each
    kind = state["backhaul_class"]
    never = opening >= torch.finfo(opening.dtype).max
    beyond = exceeded(state)  # [*B, 5, N]
    unreachable = beyond[..., TIME, :] | (opening > state["latest_arrival"])
    nonzero = (linehaul != 0) | (backhaul != 0) | (service != 0) | (opening != 0)
    faults = {
        "there is a customer besides the depot": torch.full_like(
            linehaul[..., 0], linehaul.shape[-1] < 2, dtype=torch.bool
        ),
        "demand_linehaul and demand_backhaul are not negative": (
            (linehaul < 0) | (backhaul < 0)
        ).any(-1),
        "vehicle_capacity and capacity_original are positive": (
            (capacity <= 0) | (instance["capacity_original"] <= 0)
        ).any(-1),
        "demands fit the vehicle_capacity (give both in the same units)": (
            torch.maximum(linehaul, backhaul) > capacity * (1.0 + LOAD_TOLERANCE)
        ).any(-1),
        "backhaul_class is 1 (linehauls first) or 2 (mixed)": ((kind != 1) & (kind != 2)).any(-1),
        "speed is positive": (instance["speed"] <= 0).any(-1),
        "service_time is not negative": (service < 0).any(-1),
        "time_windows open at 0 or later and do not close before": (
            (opening < 0) | never | (closing < opening)
        ).any(-1),
        "the depot (node 0) has no demand, no service_time and a time window from 0 on": (
            nonzero[..., 0]
        ),
        "time_windows can be met from the depot, with time to return unless open_route": (
            unreachable.any(-1)
        ),
        "distance_limit allows the way to each customer, and back unless open_route": (
            beyond[..., LENGTH, :].any(-1)
        ),
    }
    for key in MATRICES:
        if key in instance:
            matrix = instance[key]  # [*B, N, N]
            faults[f"{key} is not negative, and 0 from the depot to itself"] = (matrix < 0).flatten(
                -2
            ).any(-1) | (matrix[..., 0, 0] != 0)
    return faults
