"""Split Delivery Vehicle Routing Problem."""

from __future__ import annotations

from typing import Any

import torch

from torch import Tensor

from rl4co.core.errors import UnsupportedError
from rl4co.core.registry import ENVS
from rl4co.envs.base import State
from rl4co.envs.routing._parts import allowed_starts, count_allowed_starts
from rl4co.envs.routing.cvrp.env import CAPACITY_TOLERANCE, CVRPEnv
from rl4co.envs.routing.cvrp.generator import CVRPGenerator


@ENVS.register("sdvrp")
class SDVRPEnv(CVRPEnv):
    """Split Delivery VRP: cheapest routes; several vehicles may serve the same customer.

    Instances are those of the :class:`CVRPEnv`. A vehicle delivers at each visit what the customer
    still needs or, if that is less, its remaining load; another visit delivers the remainder.
    Customers without demand are not visited.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates, depot first |
        | `demand` | float32 | `[*B, N]` | demand, 0 for the depot |
        | `remaining_demand` | float32 | `[*B, N]` | demand not delivered yet, 0 for the depot |
        | `capacity` | float32 | `[*B, 1]` | capacity in the original units |
        | `vehicle_capacity` | float32 | `[*B, 1]` | capacity in the units of `demand` |
        | `used_capacity` | float32 | `[*B, 1]` | delivered on the current route |
        | `current_node` | int64 | `[*B]` | last node visited (starts at the depot, 0) |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `action_mask` | bool | `[*B, N]` | customers to serve; the depot unless pointless |

    Constraints:
        Every customer gets its demand; a vehicle delivers no more than its capacity on a route.

    Finish condition:
        Nothing is left to deliver; finished instances go to the depot and stay there.

    Reward:
        Minus the total length of all routes, $-\\sum_{t=0}^{T} d(a_{t-1}, a_t)$ with
        $a_{-1} = a_T = 0$.

    Paper: Kool et al. (2019), https://arxiv.org/abs/1803.08475

    Args:
        capacity_tolerance: Remainders of a demand, and of the capacity of a vehicle, below this
            share of the capacity count as zero. 0 compares in plain float32, as the code of Kool et
            al. does, and so sends vehicles to deliver rounding errors.
        kwargs: See :class:`~rl4co.envs.base.RL4COEnvBase`.
    """

    name = "sdvrp"
    generator_cls = CVRPGenerator

    def _init_state(self, instance: State) -> State:
        state = super()._init_state(instance)
        del state["visited"]
        return {**state, "remaining_demand": state["demand"]}

    def _transition(self, state: State, action: Tensor) -> State:
        node = action.unsqueeze(-1)  # [*B, 1]
        capacity, used = state["vehicle_capacity"], state["used_capacity"]
        free = (capacity - used).clamp_min(0.0)
        needed = state["remaining_demand"].gather(-1, node)
        remainder = needed - free
        # In this order an empty vehicle serves every demand that the check of instances accepts.
        is_left = remainder > capacity * (1.0 + self.capacity_tolerance) - capacity
        remaining = state["remaining_demand"].scatter(-1, node, remainder * is_left)
        return {
            "remaining_demand": remaining,
            "used_capacity": torch.where(is_left, capacity, used + needed) * (node != 0),
            "current_node": action,
            "done": remaining.sum(-1, keepdim=True) == 0,
        }

    def _forbidden(self, state: State) -> Tensor:
        full = state["used_capacity"] >= state["vehicle_capacity"] * (1.0 - self.capacity_tolerance)
        return (state["remaining_demand"] == 0) | full

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        capacity = state["vehicle_capacity"].double()  # [*B, 1]
        # Twice the tolerance of the mask, whose float32 threshold is not exact.
        negligible = capacity * 2.0 * max(self.capacity_tolerance, CAPACITY_TOLERANCE)
        needs, free = state["demand"].double(), capacity
        for node in actions.split(1, -1):  # [*B, 1] each; deliveries depend on all earlier ones
            needed = needs.gather(-1, node)
            remainder = (needed - free).clamp_min(0.0)
            needs = needs.scatter(-1, node, remainder * (remainder > negligible))
            free = torch.where(node == 0, capacity, (free - needed).clamp_min(0.0))
        return {"every demand is delivered": (needs > 0).any(-1)}

    def step_bounds(self, state: State) -> tuple[int, int]:
        """From no demand at all to n routes, all but the last of two visits.

        A vehicle serves its first customer in full, so there are n routes at most. It leaves a
        remainder at one visit at most, the last one of its route, and at none on the last route.
        """
        num_customers = state["demand"].shape[-1] - 1
        return 1, 3 * num_customers - 2

    # Starts are the customers that have a demand.

    def _count_starts(self, state: State) -> int:
        return count_allowed_starts(state["action_mask"])

    def _most_starts(self, state: State) -> int:
        return state["demand"].shape[-1] - 1

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        return allowed_starts(state["action_mask"], num_starts)

    def _local_search(self, state: State, actions: Tensor, **options: Any) -> Tensor:
        raise UnsupportedError(f"{self.name} has no local search")
