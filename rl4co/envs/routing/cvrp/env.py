"""Capacitated Vehicle Routing Problem."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar

import torch

from tensordict import TensorDict
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.graphs import CandidateGraph
from rl4co.core.ops import all_true
from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.routing._parts import (
    count_visits,
    depot_tour_length,
    distinct_instances,
    first_customers,
    locs_with_depot,
    pad_depot,
    start_at_depot,
    sum_along_routes,
    unvisited,
)
from rl4co.envs.routing.cvrp.generator import CVRPGenerator

#: Slack on the vehicle capacity, shared by the mask and the validity check: float32 sums of
#: demands that fill a vehicle exactly exceed its capacity by up to about 1e-6.
CAPACITY_TOLERANCE = 1e-5


@ENVS.register("cvrp")
class CVRPEnv(RL4COEnvBase):
    """Capacitated Vehicle Routing Problem: cheapest routes from a depot that serve every customer.

    An instance has customers `locs [n, 2]`, a `depot [2]` and `demand [n]` divided by the capacity.
    Optional: the original `capacity [1]` (default 1), which only solvers read; a `vehicle_capacity
    [1]`, if demands are in other units (default 1); and a `cost_matrix [N, N]` over depot and
    customers (N = n + 1) that replaces Euclidean distances; with it, coordinates may be missing.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates, depot first |
        | `demand` | float32 | `[*B, N]` | demand, 0 for the depot |
        | `capacity` | float32 | `[*B, 1]` | capacity in the original units |
        | `vehicle_capacity` | float32 | `[*B, 1]` | capacity in the units of `demand` |
        | `used_capacity` | float32 | `[*B, 1]` | load on the current route |
        | `visited` | bool | `[*B, N]` | nodes visited so far |
        | `current_node` | int64 | `[*B]` | last node visited (starts at the depot, 0) |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `action_mask` | bool | `[*B, N]` | customers that fit; the depot unless pointless |

    Constraints:
        Every customer is visited exactly once; the demand on a route does not exceed the capacity.

    Finish condition:
        All nodes, the depot included, are visited; finished instances stay at the depot.

    Reward:
        Minus the total length of all routes, $-\\sum_{t=0}^{T} d(a_{t-1}, a_t)$ with
        $a_{-1} = a_T = 0$.

    Args:
        capacity_tolerance: Relative slack of the mask. 0 compares in plain float32, as the code of
            Kool et al. (2019) does, and so forbids some vehicles from being filled exactly.
        kwargs: See :class:`RL4COEnvBase`.
    """

    name = "cvrp"
    generator_cls = CVRPGenerator
    instance_shapes = {"locs": "n 2", "depot": "2", "demand": "n"}
    optional_shapes = {"capacity": "1", "vehicle_capacity": "1", "cost_matrix": "n+1 n+1"}
    integer_keys: ClassVar[Collection[str]] = ("capacity",)
    substitutes = {"cost_matrix": ("locs", "depot")}

    def __init__(
        self, *args: Any, capacity_tolerance: float = CAPACITY_TOLERANCE, **kwargs: Any
    ) -> None:
        check_at_least(0, capacity_tolerance=capacity_tolerance)
        self.capacity_tolerance = capacity_tolerance
        super().__init__(*args, **kwargs)

    def load_data(self, fpath: str | Path) -> TensorDict:
        """Instances from an `.npz` file with this problem's keys.

        Files of the literature have one `capacity [B]` per instance and demands in its units, which
        are divided by it here.
        """
        td = super().load_data(fpath)
        if "capacity" in td.keys() and td["capacity"].dim() == 1:
            capacity = td["capacity"].unsqueeze(-1)  # [B, 1]
            td.update({"capacity": capacity, "demand": td["demand"] / capacity})
        return td

    def _init_state(self, instance: State) -> State:
        demand = pad_depot(instance["demand"])  # [*B, N]
        one = torch.ones_like(demand[..., :1])  # [*B, 1]
        return {
            **locs_with_depot(instance),
            "demand": demand,
            "capacity": instance.get("capacity", one),
            "vehicle_capacity": instance.get("vehicle_capacity", one),
            "used_capacity": torch.zeros_like(demand[..., :1]),
            "visited": unvisited(demand),
            "current_node": start_at_depot(demand),
        }

    def _transition(self, state: State, action: Tensor) -> State:
        node = action.unsqueeze(-1)  # [*B, 1]
        load = state["used_capacity"] + state["demand"].gather(-1, node)
        visited = state["visited"].scatter(-1, node, True)
        return {
            "used_capacity": load * (node != 0),
            "visited": visited,
            "current_node": action,
            "done": all_true(visited),
        }

    def _action_mask(self, state: State) -> Tensor:
        forbidden = self._forbidden(state)[..., 1:]  # [*B, N - 1]
        return torch.cat([self._may_return(state) | all_true(forbidden), ~forbidden], -1)

    def _forbidden(self, state: State) -> Tensor:
        """Customers that the vehicle cannot visit next, `[*B, N]`; the depot's entry is not read.

        For variants: one more reason to leave customers out.
        """
        load = state["demand"] + state["used_capacity"]  # [*B, N]
        too_much = load > state["vehicle_capacity"] * (1.0 + self.capacity_tolerance)
        return state["visited"] | too_much

    def _may_return(self, state: State) -> Tensor:
        """Whether the depot is a choice while some customer fits, `[*B, 1]`."""
        # Staying at the depot is pointless.
        return state["current_node"].unsqueeze(-1) != 0

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        return -depot_tour_length(state, actions)

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        visits = count_visits(actions, state["demand"].shape[-1])
        load = sum_along_routes(state["demand"].double().gather(-1, actions), actions)
        # Float32 sums need some slack even where the mask has none.
        slack = 1.0 + max(self.capacity_tolerance, CAPACITY_TOLERANCE)
        limit = state["vehicle_capacity"].double() * slack
        return {
            "every customer is visited exactly once": (visits[..., 1:] != 1).any(-1),
            "no route exceeds the vehicle capacity": (load > limit).any(-1),
        }

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        demand = instance["demand"]
        one = torch.ones_like(demand[..., :1])  # [*B, 1]
        capacity, limit = (instance.get(key, one) for key in ("capacity", "vehicle_capacity"))
        return {
            "demand is not negative": (demand < 0).any(-1),
            "capacity is positive": ((capacity <= 0) | (limit <= 0)).any(-1),
            "demand fits the vehicle_capacity (1 unless given; divide demand by capacity)": (
                demand > limit * (1.0 + self.capacity_tolerance)
            ).any(-1),
        }

    def step_bounds(self, state: State) -> tuple[int, int]:
        """Every customer and the depot at least; a depot visit between all customers at most."""
        num_customers = state["demand"].shape[-1] - 1
        return num_customers + 1, max(2 * num_customers - 1, num_customers + 1)

    def _count_starts(self, state: State) -> int:
        return state["demand"].shape[-1] - 1

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        return first_customers(state["demand"], num_starts)

    def _local_search(self, state: State, actions: Tensor, **options: Any) -> Tensor:
        from rl4co.envs.routing.cvrp.local_search import search_routes

        axes = {"locs": 2, "cost_matrix": 2, "demand": 1, "vehicle_capacity": 1}
        arrays = distinct_instances(state, axes, options.get("heatmap"))
        improved = search_routes(
            arrays.get("locs"),
            arrays.get("cost_matrix"),
            arrays["demand"],
            arrays["vehicle_capacity"].squeeze(-1),
            actions.reshape(-1, actions.shape[-1]).cpu().numpy(),
            **{"capacity_tolerance": max(self.capacity_tolerance, CAPACITY_TOLERANCE), **options},
        )
        return torch.from_numpy(improved).view(*actions.shape[:-1], -1).to(actions.device)

    def _sample_by_edges(
        self, state: State, graph: CandidateGraph, weights: Tensor, draws: Tensor, rule: str
    ) -> Tensor | None:
        from rl4co.envs.routing.cvrp.ants import ANTS, draw_routes

        if not graph.has_hub or not ANTS.applies(self, state):
            return None
        limit = state["vehicle_capacity"] * (1.0 + self.capacity_tolerance)
        routes = draw_routes(
            state["demand"].numpy(),
            limit.squeeze(-1).numpy(),
            graph.targets.numpy(),
            graph.regular(weights).double().numpy(),
            graph.hub(weights).double().numpy(),
            draws.double().numpy(),
        )
        return torch.from_numpy(routes)
