"""Traveling Salesman Problem."""

from __future__ import annotations

from typing import Any

import torch

from torch import Tensor

from rl4co.core.graphs import CandidateGraph
from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.routing._parts import distinct_instances, tour_length
from rl4co.envs.routing.tsp.generator import TSPGenerator


@ENVS.register("tsp")
class TSPEnv(RL4COEnvBase):
    """Traveling Salesman Problem: the shortest closed tour that visits every node once.

    An instance has coordinates `locs [N, 2]`, or a `cost_matrix [N, N]` (symmetric or not) that
    replaces Euclidean distances, or both.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates |
        | `first_node` | int64 | `[*B]` | first node of the tour (0 before the first step) |
        | `current_node` | int64 | `[*B]` | last node visited (0 before the first step) |
        | `available` | bool | `[*B, N]` | nodes not visited yet; at the end, the last one |
        | `i` | int64 | `[*B, 1]` | number of nodes visited |
        | `action_mask` | bool | `[*B, N]` | the available nodes |

    Constraints:
        Every node is visited exactly once.

    Finish condition:
        All N nodes are visited (exactly N steps).

    Reward:
        Minus the length of the closed tour, $-\\sum_{t} d(a_t, a_{t+1 \\bmod N})$.
    """

    name = "tsp"
    generator_cls = TSPGenerator
    instance_shapes = {"locs": "n 2"}
    optional_shapes = {"cost_matrix": "n n"}
    substitutes = {"cost_matrix": ("locs",)}

    def _init_state(self, instance: State) -> State:
        nodes = instance["locs" if "locs" in instance else "cost_matrix"]  # [*B, N, ...]
        start = torch.zeros(nodes.shape[:-2], dtype=torch.int64, device=nodes.device)
        return {
            **{key: instance[key] for key in ("locs",) if key in instance},
            "first_node": start,
            "current_node": start,
            "i": start.unsqueeze(-1),
            "available": torch.ones(nodes.shape[:-1], dtype=torch.bool, device=nodes.device),
        }

    def _transition(self, state: State, action: Tensor) -> State:
        i, available = state["i"], state["available"]
        num_visited = i + 1
        done = num_visited >= available.shape[-1]
        return {
            "first_node": torch.where(i.squeeze(-1) == 0, action, state["first_node"]),
            "current_node": action,
            "i": num_visited,
            # A finished tour may stay at its last node, without effect.
            "available": available.scatter(-1, action.unsqueeze(-1), done),
            "done": done,
        }

    def _action_mask(self, state: State) -> Tensor:
        return state["available"]

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        return -tour_length(state, actions)

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        num_nodes = state["action_mask"].shape[-1]
        if actions.shape[-1] != num_nodes:
            wrong = torch.ones(actions.shape[:-1], dtype=torch.bool, device=actions.device)
            return {"every node is visited exactly once": wrong}
        every_node = torch.arange(num_nodes, device=actions.device)
        visits = actions.sort(-1).values
        return {"every node is visited exactly once": (visits != every_node).any(-1)}

    def step_bounds(self, state: State) -> tuple[int, int]:
        """Exactly one step per node."""
        num_nodes = state["action_mask"].shape[-1]
        return num_nodes, num_nodes

    def _count_starts(self, state: State) -> int:
        return state["action_mask"].shape[-1]

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        mask = state["action_mask"]
        return torch.arange(num_starts, device=mask.device).expand(*mask.shape[:-1], num_starts)

    def _local_search(self, state: State, actions: Tensor, **options: Any) -> Tensor:
        from rl4co.envs.routing.tsp.local_search import search_tours

        rows = actions.reshape(-1, actions.shape[-1]).cpu().numpy()
        axes = {"locs": 2, "cost_matrix": 2}
        arrays = distinct_instances(state, axes, options.get("heatmap"))
        improved = search_tours(arrays.get("locs"), arrays.get("cost_matrix"), rows, **options)
        return torch.from_numpy(improved).view(*actions.shape[:-1], -1).to(actions.device)

    def _sample_by_edges(
        self, state: State, graph: CandidateGraph, weights: Tensor, draws: Tensor, rule: str
    ) -> Tensor | None:
        from rl4co.envs.routing.tsp.ants import ANTS, draw_tours

        if graph.has_hub or not ANTS.applies(self, state):
            return None
        tours = draw_tours(
            state["locs"].double().numpy(),
            graph.targets.numpy(),
            graph.regular(weights).double().numpy(),
            draws.double().numpy(),
            rule == "nearest",
        )
        return torch.from_numpy(tours)
