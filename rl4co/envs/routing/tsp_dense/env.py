"""Traveling Salesman Problem with a reward for every step."""

from __future__ import annotations

import torch

from torch import Tensor

from rl4co.core.registry import ENVS
from rl4co.envs.base import State
from rl4co.envs.routing._parts import leg_costs
from rl4co.envs.routing.tsp.env import TSPEnv


@ENVS.register("tsp_dense")
class DenseRewardTSPEnv(TSPEnv):
    """Traveling Salesman Problem in which every step is rewarded, for stepwise methods.

    Instances, actions and solutions are those of the TSP. The rewards of an episode add up to the
    TSP's reward, so both environments have the same best solutions.

    State:
        That of the :class:`TSPEnv`.

    Constraints:
        Every node is visited exactly once.

    Finish condition:
        All N nodes are visited (exactly N steps).

    Reward:
        Each step earns minus the length that it adds to the tour: $0$ for the first node, then
        $-d(a_{t-1}, a_t)$, and at the last step also the way back to the first node, $-d(a_N,
        a_1)$. Together they are minus the length of the closed tour.
    """

    name = "tsp_dense"

    def _step_reward(self, state: State, action: Tensor, changes: State) -> Tensor:
        # The leg to this node, and the one that closes the tour: [*B, 2] each.
        origin = torch.stack([state["current_node"], action], -1)
        destination = torch.stack([action, changes["first_node"]], -1)
        # A finished tour that waits for others travels no more.
        travelled = torch.cat([state["i"] > 0, changes["done"]], -1) & ~state["done"]  # [*B, 2]
        added = leg_costs(state, origin, destination) * travelled
        return -added.sum(-1, keepdim=True)
