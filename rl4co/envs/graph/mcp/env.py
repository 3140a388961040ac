"""Maximum Coverage Problem."""

from __future__ import annotations

from typing import Any

import torch

from torch import Tensor

from rl4co.core.gains import coverage_gains
from rl4co.core.ops import gather_points
from rl4co.core.registry import ENVS
from rl4co.envs.base import State
from rl4co.envs.graph._parts import SelectionEnv, fresh_selection
from rl4co.envs.graph.mcp.generator import MCPGenerator


@ENVS.register("mcp")
class MCPEnv(SelectionEnv):
    """Maximum coverage: the k sets that together cover items of the largest weight.

    An instance has `membership [N, K]`, the items of each set (counted from 1; sets with fewer than
    K items are filled up with 0), `weights [M]` of the items and `n_sets_to_choose [1]`, the number
    k of sets.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `membership` | float32 | `[*B, N, K]` | items of each set from 1, 0 is padding |
        | `orig_membership` | float32 | `[*B, N, K]` | the same |
        | `weights` | float32 | `[*B, M]` | weights of the items, 0 once they are covered |
        | `orig_weights` | float32 | `[*B, M]` | weights of the items |
        | `n_sets_to_choose` | float32 | `[*B, 1]` | number of sets to choose |
        | `chosen` | bool | `[*B, N]` | sets that are chosen |
        | `i` | int64 | `[*B, 1]` | number of steps taken |
        | `available` | bool | `[*B, N]` | sets not chosen yet; at the end, the last one |
        | `action_mask` | bool | `[*B, N]` | the available ones |

    Constraints:
        No set is chosen twice, and as many are chosen as asked for. Steps behind the k-th count for
        nothing.

    Finish condition:
        k sets are chosen (exactly k steps).

    Reward:
        The weight of all items in any of the chosen sets, $\\sum_{t \\in \\bigcup_j S_{a_j}} w_t$.
    """

    name = "mcp"
    candidate = "set"
    generator_cls = MCPGenerator
    instance_shapes = {"membership": "n k", "weights": "m", "n_sets_to_choose": "1"}
    maximizes = True
    augments_by_default = False

    def augmentations(self) -> tuple[str, ...]:
        """None: items are nowhere, so nothing can be turned or reflected."""
        return ()

    def _num_to_choose(self, state: State) -> Tensor:
        return state["n_sets_to_choose"].long()

    def _init_state(self, instance: State) -> State:
        membership, weights = instance["membership"], instance["weights"]
        return {
            "membership": membership,
            "orig_membership": membership,
            "weights": weights,
            "orig_weights": weights,
            "n_sets_to_choose": instance["n_sets_to_choose"],
            **fresh_selection(membership[..., 0]),
        }

    def _cover(self, state: State, action: Tensor) -> State:
        items = gather_points(state["membership"], action.unsqueeze(-1)).squeeze(-2)  # [*B, K]
        return {"weights": _without(state["weights"], items)}

    def _objective(self, state: State, actions: Tensor) -> Tensor:
        sets = self._counted(state, actions)  # [*B, T]
        items = gather_points(state["orig_membership"], sets).flatten(-2)  # [*B, T * K]
        left = _without(state["orig_weights"], items)  # [*B, M]
        return (state["orig_weights"] - left).sum(-1)

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        membership, weights = instance["membership"], instance["weights"]
        wanted = instance["n_sets_to_choose"].squeeze(-1)  # [*B]
        outside = (membership < 0) | (membership > weights.shape[-1])
        return {
            "n_sets_to_choose is a whole number from 1 to the number of sets": (
                (wanted < 1) | (wanted > membership.shape[-2]) | (wanted != wanted.round())
            ),
            "membership has numbers of items from 1, or 0 for padding": (
                (outside | (membership != membership.round())).flatten(-2).any(-1)
            ),
            "no set has an item twice": _has_repeats(membership).any(-1),
            "no set is empty": (membership.amax(-1) <= 0).any(-1),
            "weights is not negative": (weights < 0).any(-1),
        }

    def _action_gains(self, state: State) -> Tensor:
        return coverage_gains(state["weights"].unsqueeze(-2), state["membership"]).squeeze(-2)

    def _local_search(self, state: State, actions: Tensor, **options: Any) -> Tensor:
        from rl4co.envs.graph.mcp.local_search import swap_sets

        counted = self._counted(state, actions)  # [*B, T]
        membership, weights = state["orig_membership"], state["orig_weights"]
        improved = swap_sets(
            membership.reshape(-1, *membership.shape[-2:]).cpu().numpy(),
            weights.reshape(-1, weights.shape[-1]).cpu().numpy(),
            counted.reshape(-1, counted.shape[-1]).cpu().numpy(),
            self._num_to_choose(state).reshape(-1).cpu().numpy(),
            **options,
        )
        return torch.from_numpy(improved).view_as(counted).to(actions.device)


def _without(weights: Tensor, items: Tensor) -> Tensor:
    """Weights with 0 for some items: `[*B, M], [*B, K]` → `[*B, M]`; items count from 1."""
    padded = torch.cat([weights[..., :1], weights], -1)  # [*B, M + 1], place 0 takes the padding
    return padded.scatter(-1, items.long(), 0.0)[..., 1:]


def _has_repeats(membership: Tensor) -> Tensor:
    """Sets that have an item twice: `[*B, N, K]` → `[*B, N]`."""
    size = membership.shape[-1]
    # Padding becomes numbers that occur once. The smallest difference of two items tells, several
    # times faster than sorting many short rows.
    fill = -torch.arange(1, size + 1, device=membership.device, dtype=membership.dtype)
    items = torch.where(membership > 0, membership, fill).movedim(-1, 0).contiguous()  # [K, *B, N]
    apart = torch.ones_like(items[0])
    for shift in range(1, size):
        apart = torch.minimum(apart, (items[shift:] - items[:-shift]).abs().amin(0))
    return apart == 0
