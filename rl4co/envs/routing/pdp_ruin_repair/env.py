"""Pickup and Delivery Problem, improved by moving one order at a time."""

from __future__ import annotations

import torch

from torch import Tensor

from rl4co.core.registry import ENVS
from rl4co.envs.first_solutions import random_choice
from rl4co.envs.hooks import State
from rl4co.envs.improvement import ImprovementEnvBase
from rl4co.envs.routing._parts import locs_with_depot
from rl4co.envs.routing.pdp.env import PDPEnv
from rl4co.envs.routing.pdp.generator import PDPGenerator

#: Past moves that policies read one by one.
MIN_RECORD = 3


@ENVS.register("pdp_ruin_repair")
class PDPRuinRepairEnv(ImprovementEnvBase):
    """Pickup and Delivery Problem in which a step removes one order and reinserts it.

    An instance is that of the PDP: m orders, nodes 1 to m are pickups, m + 1 to 2m their
    deliveries, node 0 is the depot. An action is (pair, j, k): the order (counted from 0), the node
    behind which its pickup goes, and that behind which its delivery goes, both in the tour before
    the order is taken out; j = k puts the delivery right behind the pickup. j comes before k or is
    the same, neither is a node of the order, both may be the depot. The order that was moved last
    is not moved again (unless there is only one).

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates: depot, pickups, deliveries |
        | `rec_current` | int64 | `[*B, N]` | successors in the current tour |
        | `rec_best` | int64 | `[*B, N]` | successors in the best tour so far |
        | `visited_time` | int64 | `[*B, N]` | positions in the current tour, the depot at 0 |
        | `cost_current` | float32 | `[*B]` | length of the current tour |
        | `cost_bsf` | float32 | `[*B]` | length of the best tour so far |
        | `last_action` | int64 | `[*B, 3]` | the move before this state, -1 if there was none |
        | `action_record` | int64 | `[*B, W]` | orders moved in the last W moves, the latest last |
        | `i` | int64 | `[*B, 1]` | number of moves made |

    `action_record` goes 2m moves back (at least 3), with -1 where there was none.

    Constraints:
        The successors form one closed tour through all nodes; every pickup precedes its delivery.

    Finish condition:
        None: episodes do not terminate.

    Reward:
        Of a step: its improvement of the best length so far, $c^*_t - \\min(c^*_t, c_{t+1})$. Of a
        solution (`get_reward`): minus its length.
    """

    name = "pdp_ruin_repair"
    generator_cls = PDPGenerator
    constructive_cls = PDPEnv
    moves = "ruin_repair"
    memory = ("action_record",)
    instance_shapes = {"locs": "n 2", "depot": "2"}
    optional_shapes = {"cost_matrix": "n+1 n+1"}

    def action_sizes(self, num_nodes: int) -> tuple[int, ...]:
        """An order, and two nodes."""
        return num_nodes // 2, num_nodes, num_nodes

    def _init_state(self, instance: State) -> State:
        return locs_with_depot(instance)

    def _init_memory(self, state: State) -> State:
        order = state["visited_time"]
        window = max(order.shape[-1] - 1, MIN_RECORD)
        return {"action_record": order.new_full((*order.shape[:-1], window), -1)}

    def _remember(self, state: State, action: Tensor) -> State:
        record = state["action_record"]
        return {"action_record": torch.cat([record[..., 1:], action[..., :1]], -1)}

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        locs = instance["locs"]
        odd = torch.full(locs.shape[:-2], bool(locs.shape[-2] % 2), device=locs.device)
        return {
            "the number of nodes in locs is even: pickups, then their deliveries in the same "
            "order": odd
        }

    def _order_violations(self, order: Tensor) -> dict[str, Tensor]:
        pickup, delivery = order[..., 1:].chunk(2, -1)  # [*B, m] each
        return {"every pickup precedes its delivery": (pickup > delivery).any(-1)}

    # ---------------------------------------------------------------- moves

    def _move(self, state: State, action: Tensor) -> Tensor:
        order = state["visited_time"]
        pair, node = action[..., :1], action[..., 1:]  # [*B, 1], [*B, 2]
        pickup, delivery = pair + 1, pair + 1 + order.shape[-1] // 2
        ends = order.gather(-1, torch.cat([pickup, delivery], -1)).unsqueeze(-1)  # [*B, 2, 1]
        # Positions without the order; then nodes move back by the number of insertions before them.
        left = order - (order.unsqueeze(-2) > ends).sum(-2)  # [*B, N]
        behind = left.gather(-1, node)  # [*B, 2], positions of j and k
        moved = left + (left.unsqueeze(-2) > behind.unsqueeze(-1)).sum(-2)
        return moved.scatter(-1, pickup, behind[..., :1] + 1).scatter(
            -1, delivery, behind[..., 1:] + 2
        )

    def removal_mask(self, state: State) -> Tensor:
        """Orders that may be moved `[*B, m]`: all but the one moved last."""
        num_orders = state["visited_time"].shape[-1] // 2
        order = torch.arange(num_orders, device=state["visited_time"].device)
        return (order != state["last_action"][..., :1]) | (num_orders == 1)

    def reinsertion_mask(self, state: State, pair: Tensor) -> Tensor:
        """Where an order `pair [*B]` may be put in: `[*B, N, N]` (j, k)."""
        order = state["visited_time"]
        node = torch.arange(order.shape[-1], device=order.device)
        pickup = pair.unsqueeze(-1) + 1  # [*B, 1]
        stays = (node != pickup) & (node != pickup + order.shape[-1] // 2)  # [*B, N]
        in_turn = order.unsqueeze(-1) <= order.unsqueeze(-2)  # [*B, N, N]
        return in_turn & stays.unsqueeze(-1) & stays.unsqueeze(-2)

    def _is_allowed(self, state: State, action: Tensor) -> Tensor:
        pair, first, second = action.unbind(-1)
        size = state["visited_time"].shape[-1]
        places = self.reinsertion_mask(state, pair).flatten(-2)  # [*B, N * N]
        fits = places.gather(-1, (first * size + second).unsqueeze(-1))
        return (self.removal_mask(state).gather(-1, pair.unsqueeze(-1)) & fits).squeeze(-1)

    def random_action(self, state: State, rng: torch.Generator | None = None) -> Tensor:
        """A random allowed move `[*B, 3]`."""
        size = state["visited_time"].shape[-1]
        pair = random_choice(self.removal_mask(state), rng)
        place = random_choice(self.reinsertion_mask(state, pair).flatten(-2), rng)
        return torch.stack([pair, place // size, place % size], -1)
