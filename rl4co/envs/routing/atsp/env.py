"""Asymmetric Traveling Salesman Problem."""

from __future__ import annotations

from rl4co.core.registry import ENVS
from rl4co.envs.base import State
from rl4co.envs.routing.atsp.generator import ATSPGenerator
from rl4co.envs.routing.tsp.env import TSPEnv


@ENVS.register("atsp")
class ATSPEnv(TSPEnv):
    """Asymmetric Traveling Salesman Problem: the cheapest closed tour under a matrix of costs.

    It is the TSP with a matrix in place of coordinates: going from i to j costs `cost_matrix[i, j]`
    (row to column), which may differ from the way back. The diagonal is never travelled and may
    hold any number. Optional coordinates `locs [N, 2]` serve plots only.

    Paper: Kwon et al. (2021), https://arxiv.org/abs/2106.11113

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `cost_matrix` | float32 | `[*B, N, N]` | cost from row to column |
        | `first_node` | int64 | `[*B]` | first node of the tour (0 before the first step) |
        | `current_node` | int64 | `[*B]` | last node visited (0 before the first step) |
        | `i` | int64 | `[*B, 1]` | number of nodes visited |
        | `available` | bool | `[*B, N]` | nodes not visited yet; at the end, the last one |
        | `action_mask` | bool | `[*B, N]` | the available nodes |

    Constraints:
        Every node is visited exactly once.

    Finish condition:
        All N nodes are visited (exactly N steps).

    Reward:
        Minus the cost of the closed tour, $-\\sum_{t} c(a_t, a_{t+1 \\bmod N})$.
    """

    name = "atsp"
    generator_cls = ATSPGenerator  # type: ignore[assignment]  # not a TSPGenerator
    instance_shapes = {"cost_matrix": "n n"}
    optional_shapes = {"locs": "n 2"}
    substitutes = {}

    def _init_state(self, instance: State) -> State:
        return {**super()._init_state(instance), "cost_matrix": instance["cost_matrix"]}
