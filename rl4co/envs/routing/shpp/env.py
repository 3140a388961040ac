"""Shortest Hamiltonian Path Problem."""

from __future__ import annotations

from typing import Any

import torch

from torch import Tensor

from rl4co.core.errors import UnsupportedError
from rl4co.core.ops import get_distance_matrix
from rl4co.core.registry import ENVS
from rl4co.envs.base import State
from rl4co.envs.routing._parts import first_customers, leg_costs
from rl4co.envs.routing.shpp.generator import SHPPGenerator
from rl4co.envs.routing.tsp.env import TSPEnv


@ENVS.register("shpp")
class SHPPEnv(TSPEnv):
    """Shortest Hamiltonian Path Problem: the shortest open path between two fixed nodes.

    The path begins at node 0, ends at node N - 1 and visits every other node once in between (an
    open TSP with given ends, as GLOP cuts out of long tours). Instances are those of the TSP:
    coordinates `locs [N, 2]`, or a `cost_matrix [N, N]` (symmetric or not) that replaces Euclidean
    distances, or both.

    Paper: Ye et al. (2024), https://arxiv.org/abs/2312.08224

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates |
        | `first_node` | int64 | `[*B]` | where the path begins: 0 |
        | `last_node` | int64 | `[*B]` | where the path ends: N - 1 |
        | `current_node` | int64 | `[*B]` | last node visited (0 before the first step) |
        | `available` | bool | `[*B, N]` | nodes not visited yet; at the end, the last one |
        | `earliest_step` | int64 | `[*B, N]` | step from which a node may be visited |
        | `i` | int64 | `[*B, 1]` | number of nodes visited |
        | `action_mask` | bool | `[*B, N]` | the start, then nodes in between, then the end |

    Constraints:
        Every node is visited exactly once; the first is node 0, the last is node N - 1.

    Finish condition:
        All N nodes are visited (exactly N steps).

    Reward:
        Minus the length of the open path, $-\\sum_{t=1}^{N-1} d(a_t, a_{t+1})$.
    """

    name = "shpp"
    generator_cls = SHPPGenerator

    def _init_state(self, instance: State) -> State:
        state = super()._init_state(instance)
        available = state["available"]  # [*B, N]
        num_nodes = available.shape[-1]
        step = torch.arange(num_nodes, device=available.device)
        # The start at step 0, the end at the last one, the others from step 1 on.
        earliest = torch.where(step == num_nodes - 1, step, step.clamp_max(1))
        return {
            **state,
            "last_node": torch.full_like(state["first_node"], num_nodes - 1),
            "earliest_step": earliest.expand(available.shape),  # [*B, N]
        }

    def _action_mask(self, state: State) -> Tensor:
        return state["available"] & (state["earliest_step"] <= state["i"])

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        return -leg_costs(state, actions[..., :-1], actions[..., 1:]).sum(-1)

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        last = state["action_mask"].shape[-1] - 1
        return {
            **super()._violations(state, actions),
            "the path begins at node 0": (actions[..., :1] != 0).any(-1),
            "the path ends at the last node": (actions[..., -1:] != last).any(-1),
        }

    def _start_prefix(self, state: State) -> Tensor:
        return state["first_node"].unsqueeze(-1)  # every path begins there: [*B, 1]

    def _count_starts(self, state: State) -> int:
        num_nodes = state["available"].shape[-1]
        if num_nodes < 2:
            raise UnsupportedError("a path of one node has no starts; use greedy instead")
        return max(num_nodes - 2, 1)

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        # The nodes in between, or the end if there are none.
        return first_customers(state["available"], num_starts)

    def _local_search(self, state: State, actions: Tensor, **options: Any) -> Tensor:
        matrix = state.get("cost_matrix")
        distances = get_distance_matrix(state["locs"]) if matrix is None else matrix  # [*B, N, N]
        # A closed tour whose leg from the end to the start is worth more than any detour costs is
        # the path between them.
        bonus = -distances.abs().amax((-2, -1)) * distances.shape[-1]  # [*B]
        closed = distances.clone()
        closed[..., -1, 0] = bonus
        return super()._local_search({**state, "cost_matrix": closed}, actions, **options)
