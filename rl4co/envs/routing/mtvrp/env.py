"""Multi-Task Vehicle Routing Problem: capacities with any of O, B, L and TW on top."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.ops import all_true, any_true
from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.routing._parts import first_customers, start_at_depot, unvisited
from rl4co.envs.routing.mtvrp import variants
from rl4co.envs.routing.mtvrp.constraints import (
    ROWS,
    TOLERANCE,
    is_within_limits,
    named_quantities,
    quantities_at_nodes,
    stack_increments,
    stack_limits,
)
from rl4co.envs.routing.mtvrp.generator import MTVRPGenerator
from rl4co.envs.routing.mtvrp.legs import contiguous_columns, legs_along, legs_from, legs_to_depot
from rl4co.envs.routing.mtvrp.validity import find_faults, find_violations


@ENVS.register("mtvrp")
class MTVRPEnv(RL4COEnvBase):
    """Multi-Task VRP: cheapest routes from a depot; instances differ in their constraints.

    All instances have capacities (C). Each may have, in any combination, also within one batch:
    open routes (O), which end at their last customer; backhauls (B), which bring goods to the
    depot, after all linehauls of a route (class 1) or mixed with them (class 2); a limit on the
    length of a route (L); time windows (TW).

    | variant | O | B | L | TW | | variant | O | B | L | TW |
    |---|---|---|---|---|---|---|---|---|---|---|
    | CVRP | | | | | | VRPBL | | ✓ | ✓ | |
    | OVRP | ✓ | | | | | VRPBTW | | ✓ | | ✓ |
    | VRPB | | ✓ | | | | VRPLTW | | | ✓ | ✓ |
    | VRPL | | | ✓ | | | OVRPBL | ✓ | ✓ | ✓ | |
    | VRPTW | | | | ✓ | | OVRPBTW | ✓ | ✓ | | ✓ |
    | OVRPTW | ✓ | | | ✓ | | OVRPLTW | ✓ | | ✓ | ✓ |
    | OVRPB | ✓ | ✓ | | | | VRPBLTW | | ✓ | ✓ | ✓ |
    | OVRPL | ✓ | | ✓ | | | OVRPBLTW | ✓ | ✓ | ✓ | ✓ |

    Arrays of an instance have N nodes, the depot (node 0) first; see the table for the shapes.
    Unlimited quantities have a limit of infinity. A customer may have both demands. The default
    of `backhaul_class` is 1. Optional: a `cost_matrix [N, N]` that replaces Euclidean distances
    (coordinates may be missing then), and a `duration_matrix [N, N]` that replaces distance / speed
    as travel time. Where matrices break the triangle inequality, the mask is stricter than the
    check: it requires a direct leg back to the depot from every customer of a closed route.

    Papers: Liu et al. (2024), https://arxiv.org/abs/2402.16891; Berto et al. (2024),
    https://arxiv.org/abs/2406.15007

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates, depot first |
        | `demand_linehaul` | float32 | `[*B, N]` | delivered to a customer |
        | `demand_backhaul` | float32 | `[*B, N]` | collected from a customer |
        | `backhaul_class` | float32 | `[*B, 1]` | 1: linehauls before backhauls, 2: any order |
        | `vehicle_capacity` | float32 | `[*B, 1]` | capacity in the units of the demands |
        | `capacity_original` | float32 | `[*B, 1]` | capacity in the original units |
        | `open_route` | bool | `[*B, 1]` | whether routes end at their last customer |
        | `distance_limit` | float32 | `[*B, 1]` | longest route |
        | `time_windows` | float32 | `[*B, N, 2]` | when service may begin |
        | `service_time` | float32 | `[*B, N]` | how long it takes |
        | `speed` | float32 | `[*B, 1]` | distance per time |
        | `return_distance` | float32 | `[*B, N]` | way back to the depot, 0 if routes are open |
        | `latest_arrival` | float32 | `[*B, N]` | latest feasible arrival |
        | `limits` | float32 | `[*B, 5, N]` | largest quantities with which a node may be visited |
        | `stacked_demands` | float32 | `[*B, 5, N]` | what a visit adds to them, apart from legs |
        | `leg_divisors` | float32 | `[*B, 5, 1]` | legs add their length divided by this |
        | `service_times` | float32 | `[*B, 2, N]` | opening of the time window, service time |
        | `on_arrival` | float32 | `[*B, 5, N]` | route quantities if it is visited next |
        | `leg_distance` | float32 | `[*B, N]` | distance from the current node |
        | `current_node` | int64 | `[*B]` | last node visited (starts at the depot, 0) |
        | `current_time` | float32 | `[*B, 1]` | end of service there; 0 at the depot |
        | `current_route_length` | float32 | `[*B, 1]` | length of the current route |
        | `used_capacity_linehaul` | float32 | `[*B, 1]` | largest load on the current route |
        | `used_capacity_backhaul` | float32 | `[*B, 1]` | backhauls on the current route |
        | `visited` | bool | `[*B, N]` | nodes visited so far |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `action_mask` | bool | `[*B, N]` | customers that keep all constraints; the depot |

    Constraints:
        Every customer is visited exactly once; no vehicle carries more than its capacity at any
        time; a linehaul never follows a backhaul on a route of class 1; service begins within the
        time windows, and closed routes are back while the depot is open; no route is longer than
        the limit, its way back included unless it is open.

    Finish condition:
        All nodes, the depot included, are visited; finished instances stay at the depot.

    Reward:
        Minus the total length of all routes, without the legs back to the depot if they are open.
    """

    name = "mtvrp"
    generator_cls = MTVRPGenerator
    instance_shapes = {
        "locs": "n+1 2",
        "demand_linehaul": "n+1",
        "demand_backhaul": "n+1",
        "distance_limit": "1",
        "time_windows": "n+1 2",
        "service_time": "n+1",
        "vehicle_capacity": "1",
        "capacity_original": "1",
        "open_route": "1",
        "speed": "1",
    }
    optional_shapes = {
        "backhaul_class": "1",
        "cost_matrix": "n+1 n+1",
        "duration_matrix": "n+1 n+1",
    }
    unlimited_keys = ("distance_limit", "time_windows")
    substitutes = {"cost_matrix": ("locs",)}

    # ---------------------------------------------------------------- dynamics

    def _init_state(self, instance: State) -> State:
        demand, zero = instance["demand_linehaul"], torch.zeros_like(instance["speed"])
        depot, open_route = start_at_depot(demand), instance["open_route"]
        back = legs_to_depot(instance)  # [*B, N]
        if "duration_matrix" in instance:
            ride = legs_to_depot(instance, "duration_matrix")
        else:
            ride = back / instance["speed"]
        closing = instance["time_windows"][..., 1] * (1.0 + TOLERANCE)  # [*B, N]
        # A closed route must leave early enough to be back before the depot closes.
        homeward = closing[..., :1] - instance["service_time"] - ride
        state = {
            **{key: instance[key] for key in self.instance_shapes if key in instance},
            **contiguous_columns(instance),
            "backhaul_class": instance.get("backhaul_class", torch.ones_like(zero)),
            "return_distance": back * ~open_route,
            "latest_arrival": torch.where(open_route, closing, torch.minimum(closing, homeward)),
            "leg_distance": legs_from(instance, depot),
            "current_node": depot,
            "visited": unvisited(demand),
        }
        state["limits"] = stack_limits(state)
        state["stacked_demands"], state["leg_divisors"] = stack_increments(state)
        opening, service = instance["time_windows"][..., 0], instance["service_time"]
        state["service_times"] = torch.stack([opening, service], -2)
        empty = zero.expand(*zero.shape[:-1], len(ROWS))  # [*B, 5]
        on_arrival = quantities_at_nodes({**instance, **state}, empty, depot)
        return {**state, **named_quantities(empty), "on_arrival": on_arrival}

    def _transition(self, state: State, action: Tensor) -> State:
        node = action.unsqueeze(-1)  # [*B, 1]
        column = node.unsqueeze(-1)  # [*B, 1, 1]
        arrival = state["on_arrival"].gather(-1, column.expand(*node.shape[:-1], len(ROWS), 1))
        length, time, peak, fetched, _ = arrival.unbind(-2)  # [*B, 1] each
        times = state["service_times"].gather(-1, column.expand(*node.shape[:-1], 2, 1))
        opening, service = times.unbind(-2)
        leaves = torch.maximum(time, opening) + service
        # Goods delivered here were on board since the depot, so they add to the largest load.
        peak = torch.maximum(peak, fetched)
        now = torch.cat([length, leaves, peak, fetched, fetched], -1) * (node != 0)  # [*B, 5]
        legs = legs_from(state, action)
        visited = state["visited"].scatter(-1, node, True)
        return {
            **named_quantities(now),
            "leg_distance": legs,
            "on_arrival": quantities_at_nodes({**state, "leg_distance": legs}, now, action),
            "current_node": action,
            "visited": visited,
            "done": all_true(visited),
        }

    def _action_mask(self, state: State) -> Tensor:
        # Of booleans, a > b is "a and not b", and a <= b is "b or not a".
        customers = (is_within_limits(state) > state["visited"])[..., 1:]  # [*B, N - 1]
        # Staying at the depot is pointless while some customer can be served.
        depot = any_true(customers) <= (state["current_node"].unsqueeze(-1) != 0)
        return torch.cat([depot, customers], -1)

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        legs, destination = legs_along(state, actions)  # [*B, T + 1] each
        unpaid = (destination == 0) & state["open_route"]
        return -torch.where(unpaid, torch.zeros_like(legs), legs).sum(-1)

    # ---------------------------------------------------------------- checks

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        return find_violations(state, actions)

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        return find_faults(instance, {**instance, **self._init_state(instance)})

    def step_bounds(self, state: State) -> tuple[int, int]:
        """Every customer and the depot at least; a depot visit between all customers at most."""
        num_customers = state["demand_linehaul"].shape[-1] - 1
        return num_customers + 1, max(2 * num_customers - 1, num_customers + 1)

    # ---------------------------------------------------------------- starts, data, plots

    def _count_starts(self, state: State) -> int:
        return state["demand_linehaul"].shape[-1] - 1

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        return first_customers(state["demand_linehaul"], num_starts)

    def load_data(self, fpath: str | Path, scale: bool = False) -> TensorDict:
        """Instances from an `.npz` file with this problem's keys.

        Args:
            fpath: The file.
            scale: Divide demands by `capacity_original`, so that a vehicle carries 1; for files
                with demands in the original units.
        """
        td = super().load_data(fpath)
        if not scale:
            return td
        unit = td["capacity_original"]
        scaled = {key: td[key] / unit for key in ("demand_linehaul", "demand_backhaul")}
        return td.copy().update({**scaled, "vehicle_capacity": torch.ones_like(unit)})

    @staticmethod
    def check_variants(td: TensorDictBase) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Features of instances, see :func:`~rl4co.envs.routing.mtvrp.variants.check_variants`."""
        return variants.check_variants(td)

    @staticmethod
    def get_variant_names(td: TensorDictBase) -> Any:
        """Name of each instance's variant, such as OVRPBTW (MB for mixed backhauls).

        Returns:
            A string for a single instance, (nested) lists of strings for a batch.
        """
        return variants.get_variant_names(td)

    @staticmethod
    def print_presets() -> None:
        """Prints the presets of the generator with the probabilities of their features."""
        MTVRPGenerator.print_presets()
