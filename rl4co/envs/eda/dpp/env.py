"""Decap Placement Problem."""

from __future__ import annotations

from torch import Tensor

from rl4co.core.registry import ENVS
from rl4co.envs.base import State
from rl4co.envs.eda._placement import PlacementEnv
from rl4co.envs.eda.dpp.generator import DPPGenerator


@ENVS.register("dpp")
class DPPEnv(PlacementEnv):
    """Decap placement: where decoupling capacitors quieten the power supply of a chip most.

    Paper: DevFormer (Kim et al., 2023), https://arxiv.org/abs/2205.13225.

    A chip is a grid of N cells with one probing port `probe [1]` and some keep-outs. An instance
    also has the coordinates of its cells, `locs [N, 2]`, and the cells on which a decap may be
    placed, `action_mask [N]`. Optional: `max_decaps [1]`, if instances have their own numbers of
    decaps. Action k places a decap on cell k, in row `k // cols` and column `k % cols`.

    The chip is simulated, see :mod:`rl4co.envs.eda._power_grid`, so scores compare with each other
    and not with those of the papers; or it is that of the published files, if their folder is
    given (`generator_params={"data_dir": ...}`).

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates of the cells, row by row |
        | `probe` | int64 | `[*B, 1]` | cell with the probing port |
        | `keepout` | bool | `[*B, N]` | cells without decaps: keep-outs and the port |
        | `placed` | bool | `[*B, N]` | cells with a decap |
        | `current_node` | int64 | `[*B]` | cell of the last decap (0 before the first) |
        | `i` | int64 | `[*B, 1]` | number of decaps placed |
        | `action_mask` | bool | `[*B, N]` | free cells; the last one once finished |

    Constraints:
        No decap is on a keep-out or on the probing port; no cell has two.

    Finish condition:
        All decaps are placed.

    Reward:
        The impedance at the port that the decaps take away, summed over the frequencies f in
        gigahertz: $\\sum_f (|Z_{pp}| - |Z'_{pp}|) / 10 f$. The order of the decaps does not matter.

    Arguments are those of :class:`rl4co.envs.eda._placement.PlacementEnv`.
    """

    name = "dpp"
    generator_cls = DPPGenerator
    instance_shapes = {"locs": "n 2", "probe": "1", "action_mask": "n"}

    def _ports(self, state: State) -> Tensor:
        return state["probe"]

    def _reward(self, state: State, scores: Tensor) -> Tensor:
        return scores.squeeze(-1)

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        probe, num_cells = instance["probe"], instance["action_mask"].shape[-1]
        outside = (probe < 0) | (probe >= num_cells)  # [*B, 1]
        return {
            "probe is one of the cells": outside.squeeze(-1),
            **super()._instance_faults(instance),
        }
