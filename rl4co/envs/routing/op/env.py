"""Orienteering Problem."""

from __future__ import annotations

import math

from collections.abc import Mapping
from typing import Any

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.core.ops import gather_points
from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.generator import Generator
from rl4co.envs.routing._parts import (
    allowed_starts,
    count_allowed_starts,
    count_visits,
    depot_tour_length,
    leaves_depot_again,
    locs_with_depot,
    pad_depot,
    start_at_depot,
    unvisited,
)
from rl4co.envs.routing.op.generator import OPGenerator, PrizeType

#: How far below `max_length` the mask keeps a tour: the margin of Kool et al. (2019), which their
#: network sees as well.
LENGTH_MARGIN = 1e-6

#: Relative slack of the validity check: float32 sums of legs, which the mask compares, come out
#: a few 1e-6 below the exact length.
LENGTH_TOLERANCE = 1e-5


@ENVS.register("op")
class OPEnv(RL4COEnvBase):
    """Orienteering Problem: the tour from the depot and back, not too long, that collects the most.

    An instance has customers `locs [n, 2]` with a `prize [n]` each, a `depot [2]` and the length
    that a tour may have, `max_length` (a number). Optional: a `cost_matrix [N, N]` over depot and
    customers (N = n + 1) that replaces Euclidean distances, also asymmetric; with it, coordinates
    may be missing. Where a matrix breaks the triangle inequality the mask is stricter than the
    check, since it requires a direct leg to the depot from every customer.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates, depot first |
        | `prize` | float32 | `[*B, N]` | prize of each node, 0 for the depot |
        | `max_length` | float32 | `[*B, 1]` | length that a tour may have |
        | `length_limit` | float32 | `[*B, N]` | longest way to a node that leaves one back |
        | `tour_length` | float32 | `[*B, 1]` | length of the tour so far |
        | `arrival_length` | float32 | `[*B, N]` | length of the tour if it goes to this node next |
        | `visited` | bool | `[*B, N]` | nodes visited so far |
        | `current_node` | int64 | `[*B]` | last node visited (starts at the depot, 0) |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `action_mask` | bool | `[*B, N]` | customers with a way back; the depot, always |

    Constraints:
        No customer is visited twice; the tour ends with the return to the depot; it is not longer
        than `max_length`.

    Finish condition:
        The return to the depot (at once, too); finished instances stay there.

    Reward:
        The prize of all visited customers, $\\sum_t p_{a_t}$.

    Paper: Kool et al. (2019), https://arxiv.org/abs/1803.08475

    Args:
        generator: Source of instances; built from `generator_params` if not given.
        generator_params: Arguments of :class:`OPGenerator`.
        prize_type: const, unif or dist; sets that argument of the generator.
        length_margin: How far below `max_length` the mask keeps a tour. A negative margin admits
            tours that are exactly as long as allowed, regardless of rounding in float32.
        kwargs: See :class:`RL4COEnvBase`.
    """

    name = "op"
    generator_cls = OPGenerator
    instance_shapes = {"locs": "n 2", "depot": "2", "prize": "n", "max_length": ""}
    optional_shapes = {"cost_matrix": "n+1 n+1"}
    substitutes = {"cost_matrix": ("locs", "depot")}
    maximizes = True

    def __init__(
        self,
        generator: Generator | None = None,
        generator_params: Mapping[str, Any] | None = None,
        *,
        prize_type: PrizeType | None = None,
        length_margin: float = LENGTH_MARGIN,
        **kwargs: Any,
    ) -> None:
        if not math.isfinite(length_margin):
            raise ConfigError(f"expected a finite length_margin, got {length_margin}")
        if prize_type is not None:
            if generator is not None:
                raise ConfigError(
                    "expected generator or prize_type, got both; give prize_type to the generator"
                )
            generator_params = {**(generator_params or {}), "prize_type": prize_type}
        self.length_margin = length_margin
        super().__init__(generator, generator_params, **kwargs)

    def _init_state(self, instance: State) -> State:
        locs = locs_with_depot(instance)
        prize = pad_depot(instance["prize"])  # [*B, N]
        depot = start_at_depot(prize)
        max_length = instance["max_length"].unsqueeze(-1)  # [*B, 1]
        distances = {**instance, **locs}
        return {
            **locs,
            "prize": prize,
            "max_length": max_length,
            "length_limit": max_length - _lengths_to_depot(distances) - self.length_margin,
            "tour_length": torch.zeros_like(max_length),
            "arrival_length": _lengths_from(distances, depot),
            "visited": unvisited(prize),
            "current_node": depot,
        }

    def _transition(self, state: State, action: Tensor) -> State:
        node = action.unsqueeze(-1)  # [*B, 1]
        tour_length = state["arrival_length"].gather(-1, node)
        return {
            "tour_length": tour_length,
            "arrival_length": tour_length + _lengths_from(state, action),
            "visited": state["visited"].scatter(-1, node, True),
            "current_node": action,
            "done": state["done"] | (node == 0),
        }

    def _action_mask(self, state: State) -> Tensor:
        too_long = state["arrival_length"] > state["length_limit"]  # [*B, N]
        customers = ~(too_long | state["visited"] | state["done"])[..., 1:]  # [*B, N - 1]
        # Returning early is never better, but allowed.
        return torch.cat([torch.ones_like(state["done"]), customers], -1)

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        return state["prize"].gather(-1, actions).sum(-1)

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        visits = count_visits(actions, state["prize"].shape[-1])
        exact = {
            key: value.double() for key, value in state.items() if key in ("locs", "cost_matrix")
        }
        slack = max(-self.length_margin, 0.0)
        limit = state["max_length"].double().squeeze(-1) * (1.0 + LENGTH_TOLERANCE) + slack
        return {
            "no customer is visited twice": (visits[..., 1:] > 1).any(-1),
            "the tour ends with the return to the depot": leaves_depot_again(actions),
            "the tour is not longer than max_length": depot_tour_length(exact, actions) > limit,
        }

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        return {
            "prize is not negative": (instance["prize"] < 0).any(-1),
            "max_length is not negative": instance["max_length"] < 0,
        }

    def step_bounds(self, state: State) -> tuple[int, int]:
        """From returning at once to visiting every customer and returning."""
        return 1, state["prize"].shape[-1]

    # Starts are the customers with a way back; the depot is one only if there is no other.

    def _count_starts(self, state: State) -> int:
        return count_allowed_starts(state["action_mask"])

    def _most_starts(self, state: State) -> int:
        return state["prize"].shape[-1] - 1

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        return allowed_starts(state["action_mask"], num_starts)


def _lengths_from(state: Mapping[str, Tensor], origin: Tensor) -> Tensor:
    """Length of the legs from the nodes `origin [*B]` to all nodes: `[*B, N]`."""
    node = origin.unsqueeze(-1)  # [*B, 1]
    if "cost_matrix" in state:
        matrix = state["cost_matrix"]
        rows = node.unsqueeze(-1).expand(*node.shape, matrix.shape[-1])  # [*B, 1, N]
        return matrix.gather(-2, rows).squeeze(-2)
    # Faster than the norm of a difference, and bit by bit the same; products would lose digits.
    return torch.cdist(
        gather_points(state["locs"], node),
        state["locs"],
        compute_mode="donot_use_mm_for_euclid_dist",
    ).squeeze(-2)


def _lengths_to_depot(state: Mapping[str, Tensor]) -> Tensor:
    """Length of the legs from all nodes to the depot: `[*B, N]`."""
    if "cost_matrix" in state:
        return state["cost_matrix"][..., 0]
    depot = state["locs"][..., :1, :]  # [*B, 1, 2]
    return (depot - state["locs"]).norm(p=2, dim=-1)
