"""Multiple Traveling Salesman Problem."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch

from torch import Tensor

from rl4co.core.errors import UnknownNameError
from rl4co.core.ops import all_true, gather_nodes, get_distance
from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.routing._parts import (
    count_visits,
    first_customers,
    leg_costs,
    start_at_depot,
    sum_along_routes,
)
from rl4co.envs.routing.mtsp.generator import MTSPGenerator

CostType = Literal["minmax", "sum"]


@ENVS.register("mtsp")
class MTSPEnv(RL4COEnvBase):
    """Multiple Traveling Salesman Problem: tours of several agents that share the customers.

    An instance has coordinates `locs [N, 2]` with the depot first, and the number of agents
    `num_agents []`, which may differ within a batch. A `cost_matrix [N, N]` (symmetric or not)
    replaces Euclidean distances; with it, coordinates may be missing. Each agent makes one tour
    from the depot and back; going to the depot (action 0) starts the tour of the next agent. Agents
    may stay unused.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates, depot first |
        | `num_agents` | int64 | `[*B]` | number of agents |
        | `agent_idx` | int64 | `[*B]` | agent on its tour, counted from 0 |
        | `depot_distance` | float32 | `[*B, N]` | cost from each node to the depot |
        | `current_length` | float32 | `[*B]` | length of the current tour so far |
        | `max_subtour_length` | float32 | `[*B]` | length of the longest tour that has ended |
        | `way_home` | float32 | `[*B]` | cost from the current node to the depot |
        | `visited` | bool | `[*B, N]` | nodes visited so far, the depot from the start |
        | `current_node` | int64 | `[*B]` | last node visited (starts at the depot, 0) |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `action_mask` | bool | `[*B, N]` | customers not visited; the depot if an agent is left |

    Constraints:
        Every customer is visited exactly once; there are at most `num_agents` tours.

    Finish condition:
        All customers are visited; the last agent returns by itself, and waits at the depot.

    Reward:
        Minus the length of the longest tour (`minmax`), or of all tours together (`sum`); a tour
        $0, a_s, \\dots, a_e, 0$ has the length $d(0, a_s) + \\sum_{t=s}^{e-1} d(a_t, a_{t+1}) +
        d(a_e, 0)$.

    Args:
        cost_type: Objective to minimise: "minmax" or "sum".
        kwargs: See :class:`RL4COEnvBase`.
    """

    name = "mtsp"
    generator_cls = MTSPGenerator
    instance_shapes = {"locs": "n 2", "num_agents": ""}
    optional_shapes = {"cost_matrix": "n n"}
    substitutes = {"cost_matrix": ("locs",)}

    def __init__(self, *args: Any, cost_type: CostType = "minmax", **kwargs: Any) -> None:
        if cost_type not in get_args(CostType):
            raise UnknownNameError("cost type", cost_type, get_args(CostType))
        self.cost_type = cost_type
        super().__init__(*args, **kwargs)

    def _init_state(self, instance: State) -> State:
        depot_distance = _depot_distance(instance)  # [*B, N]
        zero = torch.zeros_like(depot_distance[..., 0])  # [*B]
        depot = start_at_depot(depot_distance)
        node = torch.arange(depot_distance.shape[-1], device=depot_distance.device)
        return {
            **{key: instance[key] for key in ("locs",) if key in instance},
            "num_agents": instance["num_agents"],
            "agent_idx": depot,
            "depot_distance": depot_distance,
            "current_length": zero,
            "max_subtour_length": zero,
            "way_home": zero,
            "visited": (node == 0).expand(depot_distance.shape),
            "current_node": depot,
        }

    def _transition(self, state: State, action: Tensor) -> State:
        visited = state["visited"].scatter(-1, action.unsqueeze(-1), True)
        done = all_true(visited)  # [*B, 1]
        way_home = gather_nodes(state["depot_distance"], action)
        length = state["current_length"] + _leg(state, action)
        away = action != 0
        # A tour ends at the depot; the last one ends with the last customer, its return included.
        ended = torch.where(away & ~done.squeeze(-1), 0.0, length + way_home)
        return {
            # Waiting at the depot after the end does not start another tour.
            "agent_idx": state["agent_idx"] + ~(away | state["done"].squeeze(-1)),
            "current_length": length * away,
            "max_subtour_length": torch.maximum(state["max_subtour_length"], ended),
            "way_home": way_home,
            "visited": visited,
            "current_node": action,
            "done": done,
        }

    def _action_mask(self, state: State) -> Tensor:
        agents_left = state["agent_idx"] + 1 < state["num_agents"]
        depot = (agents_left & (state["current_node"] != 0)).unsqueeze(-1) | state["done"]
        return torch.cat([depot, ~state["visited"][..., 1:]], -1)

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        lengths = self._tour_lengths(state, actions)
        return -(lengths.amax(-1) if self.cost_type == "minmax" else lengths.sum(-1))

    def _tour_lengths(self, state: State, actions: Tensor) -> Tensor:
        """Length of each tour at the step of its last customer, 0 elsewhere: `[*B, T]`."""
        depot = torch.zeros_like(actions[..., :1])
        legs = leg_costs(state, torch.cat([depot, actions[..., :-1]], -1), actions)
        so_far = sum_along_routes(legs, actions)
        home = state["depot_distance"].gather(-1, actions)
        return torch.where(_ends_tour(actions), so_far + home, 0.0)

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        visits = count_visits(actions, state["visited"].shape[-1])
        return {
            "every customer is visited exactly once": (visits[..., 1:] != 1).any(-1),
            "there are no more tours than agents": (
                _ends_tour(actions).sum(-1) > state["num_agents"]
            ),
        }

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        num_agents = instance["num_agents"]
        num_nodes = instance["locs" if "locs" in instance else "cost_matrix"].shape[-2]
        return {
            "num_agents is at least 1": num_agents < 1,
            "locs or cost_matrix has a customer besides the depot": (
                torch.full_like(num_agents, num_nodes) < 2
            ),
        }

    def step_bounds(self, state: State) -> tuple[int, int]:
        """One tour through all customers at least; a tour for each customer at most."""
        num_customers = state["visited"].shape[-1] - 1
        return num_customers, 2 * num_customers - 1

    def _count_starts(self, state: State) -> int:
        return state["visited"].shape[-1] - 1

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        return first_customers(state["visited"], num_starts)


def _depot_distance(instance: State) -> Tensor:
    """Cost from each node to the depot `[*B, N]`; staying there is free."""
    if "cost_matrix" not in instance:
        return get_distance(instance["locs"], instance["locs"][..., :1, :])
    home = instance["cost_matrix"][..., 0]  # [*B, N], column of the depot
    return torch.cat([torch.zeros_like(home[..., :1]), home[..., 1:]], -1)


def _leg(state: State, action: Tensor) -> Tensor:
    """Cost of going from the current node to `action [*B]`; staying at the depot is free."""
    node = state["current_node"]
    leg = leg_costs(state, node.unsqueeze(-1), action.unsqueeze(-1)).squeeze(-1)
    # The diagonal of a matrix may hold anything.
    return leg * (node != action) if "cost_matrix" in state else leg


def _ends_tour(actions: Tensor) -> Tensor:
    """Customers from which an agent returns to the depot: `[*B, T]` → bool `[*B, T]`."""
    depot = torch.zeros_like(actions[..., :1])
    return (actions != 0) & (torch.cat([actions[..., 1:], depot], -1) == 0)
