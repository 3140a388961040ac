"""Traveling Salesman Problem, improved by exchanges of edges."""

from __future__ import annotations

from typing import Any

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.core.registry import ENVS
from rl4co.envs.first_solutions import random_choice
from rl4co.envs.hooks import State
from rl4co.envs.improvement import ImprovementEnvBase
from rl4co.envs.routing.tsp.env import TSPEnv
from rl4co.envs.routing.tsp.generator import TSPGenerator
from rl4co.envs.routing.tsp_kopt.moves import (
    cut_mask,
    ends_move,
    k_opt,
    positions_from,
    two_opt,
)


@ENVS.register("tsp_kopt")
class TSPkoptEnv(ImprovementEnvBase):
    """Traveling Salesman Problem in which a step exchanges edges of a complete tour.

    Two kinds of moves, see :mod:`rl4co.envs.routing.tsp_kopt.moves`:

    - 2-opt (`k_max=2`): an action is two different nodes (first, second); the path from the first
      to the second is reversed. The move before and its reverse are not allowed.
    - flexible k-opt (`k_max` above 2): an action is `k_max` nodes behind which the tour is cut, in
      walking direction; the segments between them are reversed. A node right behind the one before
      it ends the move early; all further entries are then its first node. The first node of the
      move before is not allowed as first node.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates |
        | `rec_current` | int64 | `[*B, N]` | successors in the current tour |
        | `rec_best` | int64 | `[*B, N]` | successors in the best tour so far |
        | `visited_time` | int64 | `[*B, N]` | positions in the current tour, node 0 at 0 |
        | `cost_current` | float32 | `[*B]` | length of the current tour |
        | `cost_bsf` | float32 | `[*B]` | length of the best tour so far |
        | `last_action` | int64 | `[*B, A]` | the move before this state, -1 if there was none |
        | `i` | int64 | `[*B, 1]` | number of moves made |

    Constraints:
        The successors form one closed tour through all nodes.

    Finish condition:
        None: episodes do not terminate.

    Reward:
        Of a step: its improvement of the best length so far, $c^*_t - \\min(c^*_t, c_{t+1})$. Of a
        solution (`get_reward`): minus its length.

    Args:
        args: See :class:`~rl4co.envs.improvement.ImprovementEnvBase`.
        k_max: Most edges that a move exchanges, from 2 to the number of nodes.
        two_opt_mode: Whether moves are those of 2-opt (default: if `k_max` is 2).
        kwargs: See :class:`~rl4co.envs.improvement.ImprovementEnvBase`.
    """

    name = "tsp_kopt"
    generator_cls = TSPGenerator
    constructive_cls = TSPEnv
    instance_shapes = {"locs": "n 2"}
    optional_shapes = {"cost_matrix": "n n"}

    def __init__(
        self, *args: Any, k_max: int = 2, two_opt_mode: bool | None = None, **kwargs: Any
    ) -> None:
        if isinstance(k_max, bool) or not isinstance(k_max, int) or k_max < 2:
            raise ConfigError(
                f"expected k_max to be an integer of at least 2, got {k_max!r}; a move exchanges "
                "two edges or more"
            )
        self.two_opt_mode = k_max == 2 if two_opt_mode is None else two_opt_mode
        if self.two_opt_mode and k_max != 2:
            raise ConfigError(f"expected k_max=2 with two_opt_mode, got {k_max}; drop one of them")
        self.k_max = k_max
        self.moves = "two_opt" if self.two_opt_mode else "k_opt"
        super().__init__(*args, **kwargs)

    def action_sizes(self, num_nodes: int) -> tuple[int, ...]:
        """Two nodes of 2-opt, or `k_max` cuts."""
        return (num_nodes,) * self.k_max

    def _init_state(self, instance: State) -> State:
        num_nodes = instance["locs"].shape[-2]
        if self.k_max > num_nodes:
            raise ConfigError(
                f"expected k_max of at most the {num_nodes} nodes of an instance, got "
                f"{self.k_max}; a tour has no more edges to exchange"
            )
        return {"locs": instance["locs"]}

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        locs = instance["locs"]
        few = torch.full(locs.shape[:-2], locs.shape[-2] < 3, device=locs.device)
        return {"there are at least 3 nodes": few}

    # ---------------------------------------------------------------- moves

    def _move(self, state: State, action: Tensor) -> Tensor:
        if self.two_opt_mode:
            return two_opt(state["visited_time"], action[..., 0], action[..., 1])
        return k_opt(state["visited_time"], action)

    def pair_mask(self, state: State) -> Tensor:
        """Allowed moves of 2-opt `[*B, N, N]` (first, second)."""
        size = state["visited_time"].shape[-1]
        node = torch.arange(size, device=state["visited_time"].device)
        first, second = state["last_action"][..., :1], state["last_action"][..., 1:2]  # [*B, 1]
        is_first, is_second = node == first, node == second  # [*B, N]
        undone = (is_first.unsqueeze(-1) & is_second.unsqueeze(-2)) | (
            is_second.unsqueeze(-1) & is_first.unsqueeze(-2)
        )
        return ~undone & (node.unsqueeze(-1) != node)

    def first_cut_mask(self, state: State) -> Tensor:
        """Allowed first cuts of k-opt `[*B, N]`."""
        node = torch.arange(state["visited_time"].shape[-1], device=state["visited_time"].device)
        return node != state["last_action"][..., :1]

    def positions_from(self, state: State, node: Tensor) -> Tensor:
        """Positions counted from a node `[*B]`: `[*B, N]`."""
        return positions_from(state["visited_time"], node)

    def next_cut_mask(self, along: Tensor, before: Tensor, index: int) -> Tensor:
        """Allowed further cuts of k-opt `[*B, N]`, see :func:`~.moves.cut_mask`."""
        return cut_mask(along, before, index)

    def ends_move(self, along: Tensor, before: Tensor, cut: Tensor) -> Tensor:
        """Whether a cut ends the move `[*B]`, see :func:`~.moves.ends_move`."""
        return ends_move(along, before, cut)

    def _is_allowed(self, state: State, action: Tensor) -> Tensor:
        if self.two_opt_mode:
            return _look_up(self.pair_mask(state).flatten(-2), _pair_index(action, state))
        first, before = action[..., 0], action[..., 0]
        allowed = _look_up(self.first_cut_mask(state), first)
        along = self.positions_from(state, first)
        ended = torch.zeros_like(allowed)
        for index in range(1, self.k_max):
            cut = action[..., index]
            mask = self.next_cut_mask(along, before, index)
            allowed = allowed & torch.where(ended, cut == first, _look_up(mask, cut))
            ended = ended | self.ends_move(along, before, cut)
            before = cut
        return allowed

    def random_action(self, state: State, rng: torch.Generator | None = None) -> Tensor:
        """A random allowed move `[*B, A]`."""
        if self.two_opt_mode:
            size = state["visited_time"].shape[-1]
            index = random_choice(self.pair_mask(state).flatten(-2), rng)  # [*B]
            return torch.stack([index // size, index % size], -1)
        first = random_choice(self.first_cut_mask(state), rng)  # [*B]
        along, cuts = self.positions_from(state, first), [first]
        ended = torch.zeros_like(first, dtype=torch.bool)
        for number in range(1, self.k_max):
            cut = random_choice(self.next_cut_mask(along, cuts[-1], number), rng)
            cut = torch.where(ended, first, cut)
            ended = ended | self.ends_move(along, cuts[-1], cut)
            cuts.append(cut)
        return torch.stack(cuts, -1)

    def _accepted_widths(self, width: int) -> tuple[int, ...]:
        # Actions may also list the ends of the new edges (3 * width), which are not needed.
        return (width,) if self.two_opt_mode else (width, 3 * width)


def _look_up(mask: Tensor, index: Tensor) -> Tensor:
    return mask.gather(-1, index.unsqueeze(-1)).squeeze(-1)


def _pair_index(action: Tensor, state: State) -> Tensor:
    return action[..., 0] * state["visited_time"].shape[-1] + action[..., 1]
