"""Facility Location Problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torch import Tensor

from rl4co.core.gains import euclidean_costs, location_gains
from rl4co.core.ops import gather_points
from rl4co.core.registry import ENVS
from rl4co.envs.base import State
from rl4co.envs.graph._parts import SelectionEnv, fresh_selection
from rl4co.envs.graph.flp.generator import FLPGenerator


@ENVS.register("flp")
class FLPEnv(SelectionEnv):
    """Facility location: which k of N locations get a facility, so that all are near to one.

    Also known as the k-median problem. Every location is a customer and may get a facility.

    An instance has coordinates `locs [N, 2]`, or a `cost_matrix [N, N]` with the cost of serving a
    customer (column) from a facility (row) that replaces Euclidean distances, or both, and
    `to_choose`, the number k of facilities. `orig_distances` is another name of the matrix;
    `cost_matrix` counts if there are both. `distances` and `chosen` of an instance are ignored.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates |
        | `orig_distances` | float32 | `[*B, N, N]` | cost of a facility (row) for a customer |
        | `distances` | float32 | `[*B, N]` | cost of the nearest facility; first, the largest |
        | `chosen` | bool | `[*B, N]` | locations with a facility |
        | `to_choose` | int64 | `[*B]` | number of facilities |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `available` | bool | `[*B, N]` | locations without facility; at the end, the last one |
        | `action_mask` | bool | `[*B, N]` | the available ones |

    Constraints:
        No location is chosen twice, and as many are chosen as asked for. Steps behind the k-th
        count for nothing.

    Finish condition:
        k locations are chosen (exactly k steps).

    Reward:
        Minus the sum of all customers' costs, $-\\sum_j \\min_{t \\le k} c(a_t, j)$.
    """

    name = "flp"
    candidate = "location"
    generator_cls = FLPGenerator
    instance_shapes = {"locs": "n 2", "to_choose": ""}
    optional_shapes = {
        "cost_matrix": "n n",
        "orig_distances": "n n",
        "distances": "n",
        "chosen": "n",
    }
    substitutes = {"cost_matrix": ("locs",), "orig_distances": ("locs",)}
    # Facilities have no order, so symmetries of the plane and of starts help little.
    augments_by_default = False

    def _num_to_choose(self, state: State) -> Tensor:
        return state["to_choose"].unsqueeze(-1)

    def _init_state(self, instance: State) -> State:
        matrix = serving_costs(instance)  # [*B, N, N]
        largest = matrix.flatten(-2).amax(-1, keepdim=True)  # [*B, 1]
        distances = largest.expand(matrix.shape[:-1])  # [*B, N]
        return {
            **{key: instance[key] for key in ("locs", "to_choose") if key in instance},
            "orig_distances": matrix,
            "distances": distances,
            **fresh_selection(distances),
        }

    def _cover(self, state: State, action: Tensor) -> State:
        row = gather_points(state["orig_distances"], action.unsqueeze(-1)).squeeze(-2)  # [*B, N]
        return {"distances": torch.minimum(state["distances"], row)}

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        costs = gather_points(state["orig_distances"], self._counted(state, actions))  # [*B, T, N]
        return -costs.amin(-2).sum(-1)

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        places = next(instance[key] for key in (*MATRICES, "locs") if key in instance)
        wanted = instance["to_choose"]  # [*B]
        faults = {
            "to_choose is at least 1 and at most the number of locations": (wanted < 1)
            | (wanted > places.shape[-2])
        }
        if "chosen" in instance:
            faults["nothing is chosen yet (chosen is False)"] = instance["chosen"].any(-1)
        return faults

    def _action_gains(self, state: State) -> Tensor:
        distances = state["distances"].unsqueeze(-2)  # [*B, 1, N]
        return location_gains(distances, state["orig_distances"]).squeeze(-2)

    def _local_search(self, state: State, actions: Tensor, **options: Any) -> Tensor:
        from rl4co.envs.graph.flp.local_search import swap_facilities

        counted = self._counted(state, actions)  # [*B, T]
        matrix, wanted = state["orig_distances"], self._num_to_choose(state)
        improved = swap_facilities(
            matrix.reshape(-1, *matrix.shape[-2:]).cpu().numpy(),
            counted.reshape(-1, counted.shape[-1]).cpu().numpy(),
            wanted.reshape(-1).cpu().numpy(),
            **options,
        )
        return torch.from_numpy(improved).view_as(counted).to(actions.device)


#: Keys with the costs of serving customers, the first that an instance has counts.
MATRICES = ("cost_matrix", "orig_distances")


def serving_costs(instance: Mapping[str, Tensor]) -> Tensor:
    """Cost from facility (row) to customer (column) `[*B, N, N]`: a matrix, else Euclidean."""
    for key in MATRICES:
        if key in instance:
            return instance[key]
    return euclidean_costs(instance["locs"])
