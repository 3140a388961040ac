"""Prize Collecting Travelling Salesman Problem."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.envs.routing._parts import (
    count_visits,
    depot_tour_length,
    first_customers,
    leaves_depot_again,
    locs_with_depot,
    pad_depot,
    start_at_depot,
    unvisited,
)
from rl4co.envs.routing.pctsp.generator import PCTSPGenerator

#: Relative slack of the mask on the prize to collect, so that prizes that add up to it exactly do
#: so in float32 as well.
PRIZE_TOLERANCE = 1e-6

#: Relative slack of the checks of solutions and instances: that of the mask, plus the
#: rounding of its float32 sums.
CHECK_TOLERANCE = 1e-5

#: The rule that applies only if prizes are known in advance.
ENOUGH_PRIZE = "deterministic_prize adds up to prize_required (1 unless given; lower it)"


@ENVS.register("pctsp")
class PCTSPEnv(RL4COEnvBase):
    """Prize Collecting TSP: the tour that collects enough at the least length and penalties.

    An instance has customers `locs [n, 2]` with a `deterministic_prize [n]` and a `penalty [n]`
    each, and a `depot [2]`. A tour from the depot and back must collect prizes of
    `prize_required` (an optional number, 1 by default); each customer it leaves out costs its
    penalty. The `stochastic_prize [n]` is not used here and may be missing. Optional: a
    `cost_matrix [N, N]` over depot and customers (N = n + 1) that replaces Euclidean distances;
    with it, coordinates may be missing.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates, depot first |
        | `expected_prize` | float32 | `[*B, N]` | prize known in advance, 0 for the depot |
        | `real_prize` | float32 | `[*B, N]` | prize that a visit earns, 0 for the depot |
        | `penalty` | float32 | `[*B, N]` | cost of leaving a customer out, 0 for the depot |
        | `prize_required` | float32 | `[*B, 1]` | prize that a tour must collect |
        | `cur_total_prize` | float32 | `[*B, 1]` | prize collected so far |
        | `visited` | bool | `[*B, N]` | nodes visited so far |
        | `current_node` | int64 | `[*B]` | last node visited (starts at the depot, 0) |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `action_mask` | bool | `[*B, N]` | unvisited customers; the depot with enough prize |

    Constraints:
        No customer is visited twice; the tour ends with the return to the depot; it collects
        `prize_required`, or visits every customer.

    Finish condition:
        The return to the depot; finished instances stay there.

    Reward:
        Minus the length of the tour and the penalties of the customers $U$ that it leaves out,
        $-\\sum_{t=0}^{T} d(a_{t-1}, a_t) - \\sum_{i \\in U} \\beta_i$ with $a_{-1} = a_T = 0$.

    Paper: Kool et al. (2019), https://arxiv.org/abs/1803.08475

    Args:
        prize_tolerance: Relative slack of the mask. 0 compares in plain float32, as the code of
            Kool et al. does.
        kwargs: See :class:`RL4COEnvBase`.
    """

    name = "pctsp"
    generator_cls = PCTSPGenerator
    #: Prize that a visit earns.
    prize_key: ClassVar[str] = "deterministic_prize"
    instance_shapes = {
        "locs": "n 2",
        "depot": "2",
        "penalty": "n",
        "deterministic_prize": "n",
        "stochastic_prize": "n",
    }
    optional_shapes = {"prize_required": "", "cost_matrix": "n+1 n+1"}
    substitutes = {
        "cost_matrix": ("locs", "depot"),
        "deterministic_prize": ("stochastic_prize",),
    }

    def __init__(self, *args: Any, prize_tolerance: float = PRIZE_TOLERANCE, **kwargs: Any) -> None:
        if not 0 <= prize_tolerance < 1:
            raise ConfigError(f"expected prize_tolerance in [0, 1), got {prize_tolerance}")
        self.prize_tolerance = prize_tolerance
        super().__init__(*args, **kwargs)

    def _init_state(self, instance: State) -> State:
        penalty = pad_depot(instance["penalty"])  # [*B, N]
        return {
            **locs_with_depot(instance),
            "expected_prize": pad_depot(instance["deterministic_prize"]),
            "real_prize": pad_depot(instance[self.prize_key]),
            "penalty": penalty,
            "prize_required": prize_required(instance).unsqueeze(-1),  # [*B, 1]
            "cur_total_prize": torch.zeros_like(penalty[..., :1]),
            "visited": unvisited(penalty),
            "current_node": start_at_depot(penalty),
        }

    def _transition(self, state: State, action: Tensor) -> State:
        node = action.unsqueeze(-1)  # [*B, 1]
        return {
            "cur_total_prize": state["cur_total_prize"] + state["real_prize"].gather(-1, node),
            "visited": state["visited"].scatter(-1, node, True),
            "current_node": action,
            "done": state["done"] | (node == 0),
        }

    def _action_mask(self, state: State) -> Tensor:
        visited = state["visited"]  # [*B, N]
        enough = state["prize_required"] * (1.0 - self.prize_tolerance)
        # If all prizes together are not enough, visiting every customer is.
        all_visited = visited.sum(-1, keepdim=True) >= visited.shape[-1] - 1
        depot = (state["cur_total_prize"] >= enough) | all_visited
        return torch.cat([depot, ~(visited | state["done"])[..., 1:]], -1)

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        penalty = state["penalty"]
        left_out = penalty.sum(-1) - penalty.gather(-1, actions).sum(-1)
        return -depot_tour_length(state, actions) - left_out

    def _violations(self, state: State, actions: Tensor) -> dict[str, Tensor]:
        visits = count_visits(actions, state["penalty"].shape[-1])[..., 1:]  # [*B, N - 1]
        prize = (state["real_prize"].double()[..., 1:] * visits).sum(-1)
        slack = 1.0 - max(self.prize_tolerance, CHECK_TOLERANCE)
        too_little = prize < state["prize_required"].double().squeeze(-1) * slack
        return {
            "no customer is visited twice": (visits > 1).any(-1),
            "the tour ends with the return to the depot": leaves_depot_again(actions),
            "the tour collects prize_required or visits every customer": (
                too_little & (visits == 0).any(-1)
            ),
        }

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        required = prize_required(instance)  # [*B]
        expected, real = instance["deterministic_prize"], instance[self.prize_key]
        total = expected.double().sum(-1)
        return {
            "penalty is not negative": (instance["penalty"] < 0).any(-1),
            "prizes are not negative": ((expected < 0) | (real < 0)).any(-1),
            "prize_required is not negative": required < 0,
            ENOUGH_PRIZE: total < required.double() * (1.0 - CHECK_TOLERANCE),
        }

    def step_bounds(self, state: State) -> tuple[int, int]:
        """From returning at once (no prize is required) to visiting every customer."""
        return 1, state["penalty"].shape[-1]

    def _count_starts(self, state: State) -> int:
        return state["penalty"].shape[-1] - 1

    def _start_actions(self, state: State, num_starts: int) -> Tensor:
        return first_customers(state["penalty"], num_starts)


def prize_required(instance: State) -> Tensor:
    """Prize that a tour must collect, 1 unless given: `[*B]`."""
    required = instance.get("prize_required")
    return torch.ones_like(instance["penalty"][..., 0]) if required is None else required
