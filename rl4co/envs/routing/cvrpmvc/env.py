"""Capacitated Vehicle Routing Problem with few vehicles (minimum vehicle count)."""

from __future__ import annotations

from typing import Any

import torch

from torch import Tensor

from rl4co.core.graphs import CandidateGraph
from rl4co.core.registry import ENVS
from rl4co.envs.base import State
from rl4co.envs.routing._parts import sum_along_routes
from rl4co.envs.routing.cvrp.env import CAPACITY_TOLERANCE, CVRPEnv
from rl4co.envs.routing.cvrp.generator import CVRPGenerator

#: Slack on the demand that is left, in vehicles: float32 sums of many demands. Integer demands of
#: vehicles that carry up to thousands of units remain distinguishable. The check allows it twice,
#: because the mask uses it once.
FLEET_TOLERANCE = 1e-4

NO_EARLY_RETURN = "no vehicle returns early while the others cannot carry the rest"


@ENVS.register("cvrpmvc")
class CVRPMVCEnv(CVRPEnv):
    """CVRP in which vehicles are scarce, as the partition step of GLOP needs it.

    Paper: Ye et al. (2024), https://arxiv.org/abs/2312.08224.

    One vehicle more than the total demand needs is available,
    $K = \\lceil \\sum_i d_i / Q \\rceil + 1$, unless the instance has `max_vehicle [1]`. A vehicle
    returns only if the remaining vehicles can carry the remaining demand, or if no customer fits it
    any more. Deciding whether customers can be packed into K vehicles is hard, so solutions of the
    latter kind may need more than K vehicles; solutions with up to K are always valid.

    State:
        That of the :class:`CVRPEnv`, and:

        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `demand_remaining` | float32 | `[*B, 1]` | demand of the customers not yet visited |
        | `max_vehicle` | float32 | `[*B, 1]` | number K of vehicles |
        | `vehicles_used` | int64 | `[*B, 1]` | vehicles sent out, the current one included |
        | `action_mask` | bool | `[*B, N]` | customers that fit; the depot unless that is early |

    Constraints:
        Those of the CVRP; no vehicle returns to the depot while some customer still fits it and the
        remaining demand exceeds the capacity of the remaining vehicles.

    Finish condition:
        All nodes, the depot included, are visited; finished instances stay at the depot.

    Reward:
        Minus the total length of all routes, as in the CVRP.

    Args:
        kwargs: See :class:`CVRPEnv`.
    """

    name = "cvrpmvc"
    generator_cls = CVRPGenerator
    optional_shapes = {**CVRPEnv.optional_shapes, "max_vehicle": "1"}

    def _init_state(self, instance: State) -> State:
        state = super()._init_state(instance)
        total, capacity = state["demand"].sum(-1, keepdim=True), state["vehicle_capacity"]
        needed = (total / capacity - FLEET_TOLERANCE).ceil()
        return {
            **state,
            "demand_remaining": total,
            "max_vehicle": instance.get("max_vehicle", needed + 1),
            "vehicles_used": torch.ones_like(total, dtype=torch.int64),
        }

    def _transition(self, state: State, action: Tensor) -> State:
        node = action.unsqueeze(-1)  # [*B, 1]
        returns = (node == 0) & (state["current_node"].unsqueeze(-1) != 0)
        return {
            **super()._transition(state, action),
            "demand_remaining": state["demand_remaining"] - state["demand"].gather(-1, node),
            "vehicles_used": state["vehicles_used"] + returns,
        }

    def _may_return(self, state: State) -> Tensor:
        vehicles_left = state["max_vehicle"] - state["vehicles_used"] + FLEET_TOLERANCE
        rest_fits = state["demand_remaining"] <= vehicles_left * state["vehicle_capacity"]
        return super()._may_return(state) & rest_fits

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        demand = state["demand"].double().gather(-1, actions)  # [*B, T]
        at_depot, capacity = actions == 0, state["vehicle_capacity"].double()
        load = _previous(sum_along_routes(demand, actions))  # on arrival
        returns = at_depot & (_previous(actions) != 0)
        remaining = state["demand"].double().sum(-1, keepdim=True) - demand.cumsum(-1)
        vehicles_left = state["max_vehicle"] - returns.cumsum(-1) + 2 * FLEET_TOLERANCE
        # Customers not served yet are those of later steps.
        smallest = torch.where(at_depot, torch.inf, demand).flip(-1).cummin(-1).values.flip(-1)
        # Less than the mask's slack, so that its float32 sums agree that the customer fits.
        slack = 1.0 + self.capacity_tolerance - 0.5 * CAPACITY_TOLERANCE
        early = (load + smallest <= capacity * slack) & (remaining > vehicles_left * capacity)
        return {**super()._violations(state, actions), NO_EARLY_RETURN: (returns & early).any(-1)}

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        faults, vehicles = super()._instance_faults(instance), instance.get("max_vehicle")
        if vehicles is None:
            return faults
        total = instance["demand"].sum(-1, keepdim=True)
        total = total / instance.get("vehicle_capacity", torch.ones_like(total))
        too_few = (total > vehicles + FLEET_TOLERANCE).any(-1)
        return {**faults, "max_vehicle vehicles carry the total demand": too_few}

    def _local_search(self, state: State, actions: Tensor, **options: Any) -> Tensor:
        improved = super()._local_search(state, actions, **options)
        # The search never adds vehicles, but where they do not suffice one may return early.
        early = self._violations(state, improved)[NO_EARLY_RETURN].unsqueeze(-1)  # [*B, 1]
        steps = max(improved.shape[-1], actions.shape[-1])
        return torch.where(early, _pad_to(actions, steps), _pad_to(improved, steps))

    def _sample_by_edges(
        self, state: State, graph: CandidateGraph, weights: Tensor, draws: Tensor, rule: str
    ) -> Tensor | None:
        from rl4co.envs.routing.cvrpmvc.ants import ANTS, draw_scarce_routes

        if not graph.has_hub or rule != "nearest" or not ANTS.applies(self, state):
            return None
        capacity = state["vehicle_capacity"]
        routes = draw_scarce_routes(
            state["locs"].double().numpy(),
            state["demand"].numpy(),
            (capacity * (1.0 + self.capacity_tolerance)).squeeze(-1).numpy(),
            capacity.squeeze(-1).numpy(),
            (state["max_vehicle"] + FLEET_TOLERANCE).squeeze(-1).numpy(),
            graph.targets.numpy(),
            graph.regular(weights).double().numpy(),
            graph.hub(weights).double().numpy(),
            draws.double().numpy(),
        )
        return torch.from_numpy(routes)


def _previous(values: Tensor) -> Tensor:
    """The value of the step before, 0 at the first: `[*B, T]` → `[*B, T]`."""
    return torch.cat([torch.zeros_like(values[..., :1]), values[..., :-1]], -1)


def _pad_to(actions: Tensor, steps: int) -> Tensor:
    """Solutions that wait at the depot after their end: `[*B, T]` → `[*B, steps]`."""
    missing = steps - actions.shape[-1]
    return torch.cat([actions, actions.new_zeros(*actions.shape[:-1], missing)], -1)
