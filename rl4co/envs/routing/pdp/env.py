"""Pickup and Delivery Problem."""

from __future__ import annotations

from typing import Any

import torch

from torch import Tensor

from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.routing._parts import (
    count_visits,
    depot_tour_length,
    first_customers,
    locs_with_depot,
    start_at_depot,
    tour_length,
)
from rl4co.envs.routing.pdp.generator import PDPGenerator


@ENVS.register("pdp")
class PDPEnv(RL4COEnvBase):
    """Pickup and Delivery Problem: the shortest tour from a depot that carries every order.

    An instance has an even number of customers `locs [n, 2]`, pickups first, and a `depot [2]`.
    Node i (1 to n/2) is the pickup of the order that node i + n/2 takes delivery of. Any number of
    orders may be on board (stacking). Optional: a `cost_matrix [N, N]` over depot and customers
    (N = n + 1) that replaces Euclidean distances; with it, coordinates may be missing.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates: depot, pickups, deliveries |
        | `available` | bool | `[*B, N]` | nodes not visited yet |
        | `to_deliver` | bool | `[*B, N]` | no pickup has to come first: all but open deliveries |
        | `current_node` | int64 | `[*B]` | last node visited (starts at the depot, 0) |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `action_mask` | bool | `[*B, N]` | nodes not visited whose pickup, if any, is |

    Constraints:
        Every pickup and delivery is visited exactly once; every pickup precedes its delivery; the
        depot is visited at the start and the end only.

    Finish condition:
        All customers are visited (exactly n steps, N if the start is a step).

    Reward:
        Minus the length of the tour, $-\\sum_{t=0}^{n} d(a_{t-1}, a_t)$ with $a_{-1} = a_n = 0$.

    Args:
        force_start_at_depot: Whether leaving the depot is a step, the first one, with action 0. If
            not, the depot is not among the actions; it belongs to the tour either way.
        kwargs: See :class:`RL4COEnvBase`.
    """

    name = "pdp"
    generator_cls = PDPGenerator
    instance_shapes = {"locs": "n 2", "depot": "2"}
    optional_shapes = {"cost_matrix": "n+1 n+1"}
    substitutes = {"cost_matrix": ("locs", "depot")}

    def __init__(self, *args: Any, force_start_at_depot: bool = False, **kwargs: Any) -> None:
        self.force_start_at_depot = force_start_at_depot
        super().__init__(*args, **kwargs)

    def _init_state(self, instance: State) -> State:
        coordinates = locs_with_depot(instance)
        nodes = coordinates["locs"] if coordinates else instance["cost_matrix"]  # [*B, N, ...]
        shape = nodes.shape[:-1]  # [*B, N]
        node = torch.arange(shape[-1], device=nodes.device).expand(shape)
        return {
            **coordinates,
            "available": (node > 0) | self.force_start_at_depot,
            "to_deliver": node <= shape[-1] // 2,
            "current_node": start_at_depot(node),
        }

    def _transition(self, state: State, action: Tensor) -> State:
        node, num_nodes = action.unsqueeze(-1), state["available"].shape[-1]  # [*B, 1], N
        # A pickup releases its delivery. Others map, modulo N, to a node released before.
        released = (node + num_nodes // 2) % num_nodes
        i = state["i"] + 1
        done = i >= self._num_steps(state)
        return {
            # A finished tour may stay at its last node, without effect.
            "available": state["available"].scatter(-1, node, done),
            "to_deliver": state["to_deliver"].scatter(-1, released, True),
            "current_node": action,
            "i": i,
            "done": done,
        }

    def _action_mask(self, state: State) -> Tensor:
        allowed = state["available"] & state["to_deliver"]  # [*B, N]
        if not self.force_start_at_depot:
            return allowed
        at_depot = allowed[..., :1]  # until it is left, the depot is the only choice
        return torch.cat([at_depot, allowed[..., 1:] & ~at_depot], -1)

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        if self.force_start_at_depot:
            return -tour_length(state, actions)
        return -depot_tour_length(state, actions)

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        num_nodes = state["available"].shape[-1]
        visits = count_visits(actions, num_nodes)  # [*B, N]
        steps = torch.arange(actions.shape[-1], device=actions.device).expand_as(actions)
        when = torch.zeros_like(visits, dtype=torch.int64).scatter(-1, actions, steps)  # [*B, N]
        pickup, delivery = when[..., 1:].chunk(2, -1)  # [*B, n / 2] each
        away = visits[..., 0] != int(self.force_start_at_depot)
        if self.force_start_at_depot:
            away = away | (actions[..., :1] != 0).any(-1)
        return {
            "every pickup and delivery is visited exactly once": (visits[..., 1:] != 1).any(-1),
            "every pickup precedes its delivery": (pickup > delivery).any(-1),
            "the depot is visited at the start and the end only": away,
        }

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        nodes = instance["locs"] if "locs" in instance else instance["cost_matrix"][..., 1:, :]
        odd = bool(nodes.shape[-2] % 2)
        return {
            "the number of nodes in locs (cost_matrix: without the depot) is even: pickups, then "
            "their deliveries in the same order": torch.full(
                nodes.shape[:-2], odd, device=nodes.device
            ),
        }

    def _num_steps(self, state: State) -> int:
        num_nodes = state["available"].shape[-1]
        return num_nodes if self.force_start_at_depot else num_nodes - 1

    def step_bounds(self, state: State) -> tuple[int, int]:
        """Exactly one step per customer, and one for the depot if the start is a step."""
        steps = self._num_steps(state)
        return steps, steps

    def _start_prefix(self, state: State) -> Tensor | None:
        if not self.force_start_at_depot:
            return None
        return torch.zeros_like(state["current_node"]).unsqueeze(-1)  # at the depot: [*B, 1]

    def _count_starts(self, state: State) -> int:
        return state["available"].shape[-1] // 2

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        return first_customers(state["available"], num_starts)
