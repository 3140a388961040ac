"""Multi-Port Decap Placement Problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torch import Tensor

from rl4co.core.errors import UnknownNameError
from rl4co.core.registry import ENVS
from rl4co.envs.base import State
from rl4co.envs.eda._placement import PlacementEnv
from rl4co.envs.eda.mdpp.generator import MDPPGenerator
from rl4co.envs.generator import Generator, check_count

#: Names of the objectives: the published code's, and the paper's for the same.
OBJECTIVES: Mapping[str, str] = {
    "minmax": "minmax",
    "maxmin": "minmax",
    "meansum": "meansum",
    "maxsum": "meansum",
}
#: Most probing ports of an instance, if neither environment nor generator say so.
MAX_PROBES = 5


@ENVS.register("mdpp")
class MDPPEnv(PlacementEnv):
    """Decap placement with several probing ports, of which the worst or the mean counts.

    Paper: RL4CO (Berto et al., 2025), after DevFormer (Kim et al., 2023),
    https://arxiv.org/abs/2205.13225.

    An instance is one of the :class:`~rl4co.envs.eda.dpp.env.DPPEnv`, but for its ports:
    `probe [N]` is True where there is one. The chip is simulated, or that of the published files,
    as there.

    State:
        | key | dtype | shape | meaning |
        |---|---|---|---|
        | `locs` | float32 | `[*B, N, 2]` | coordinates of the cells, row by row |
        | `probe` | bool | `[*B, N]` | cells with a probing port |
        | `keepout` | bool | `[*B, N]` | cells without decaps: keep-outs and ports |
        | `placed` | bool | `[*B, N]` | cells with a decap |
        | `current_node` | int64 | `[*B]` | cell of the last decap (0 before the first) |
        | `i` | int64 | `[*B, 1]` | number of decaps placed |
        | `action_mask` | bool | `[*B, N]` | free cells; the last one once finished |

    Constraints:
        No decap is on a keep-out or on a probing port; no cell has two.

    Finish condition:
        All decaps are placed.

    Reward:
        With the score of a port as in the DPP: the smallest score of the ports ("minmax", which the
        paper calls maxmin), or their mean ("meansum", maxsum).

    Args:
        generator: Source of instances.
        generator_params: Arguments of the generator.
        max_decaps: See :class:`rl4co.envs.eda._placement.PlacementEnv`.
        reward_type: "minmax" (or "maxmin") or "meansum" (or "maxsum").
        max_probes: Most probing ports that an instance may have; None: as many as the generator
            draws.
        kwargs: See :class:`RL4COEnvBase`.
    """

    name = "mdpp"
    generator_cls = MDPPGenerator
    instance_shapes = {"locs": "n 2", "probe": "n", "action_mask": "n"}

    def __init__(
        self,
        generator: Generator | None = None,
        generator_params: Mapping[str, Any] | None = None,
        max_decaps: int | None = None,
        reward_type: str = "minmax",
        max_probes: int | None = None,
        **kwargs: Any,
    ) -> None:
        if reward_type not in OBJECTIVES:
            raise UnknownNameError("reward_type", reward_type, OBJECTIVES)
        self.reward_type = OBJECTIVES[reward_type]
        super().__init__(generator, generator_params, max_decaps, **kwargs)
        drawn = getattr(self.generator, "num_probes_max", MAX_PROBES)
        self.max_probes: int = (
            drawn if max_probes is None else check_count("max_probes", max_probes)
        )

    def _ports(self, state: State) -> Tensor:
        count = min(self.max_probes, state["probe"].shape[-1])
        is_port, cell = state["probe"].to(torch.int8).topk(count, -1)  # [*B, P]
        return torch.where(is_port.bool(), cell, -1)

    def _reward(self, state: State, scores: Tensor) -> Tensor:
        there = self._ports(state) >= 0  # [*B, P]
        if self.reward_type == "minmax":
            return scores.masked_fill(~there, torch.inf).amin(-1)
        return scores.sum(-1) / there.sum(-1)

    def _instance_faults(self, instance: State) -> dict[str, Tensor]:
        ports = instance["probe"].sum(-1)  # [*B]
        return {
            "there is a probing port": ports == 0,
            "there are at most as many probing ports as max_probes of the environment says": (
                ports > self.max_probes
            ),
            **super()._instance_faults(instance),
        }

    def _render(self, state: State, actions: Tensor | None, **options: Any) -> Any:
        return super()._render(state, actions, objective=self.reward_type, **options)
