"""Instances of the decap placement problem with several probing ports."""

from __future__ import annotations

from typing import Any

import torch

from tensordict import TensorDict

from rl4co.envs.eda._placement import PlacementGenerator
from rl4co.envs.generator import check_count


class MDPPGenerator(PlacementGenerator):
    """Some probing ports and keep-outs on a chip, which is simulated unless files are given.

    Args:
        min_loc: Smallest coordinate.
        max_loc: Where the longer side of the grid ends; the last cell lies a cell before it.
        num_keepout_min: Fewest keep-outs.
        num_keepout_max: Most keep-outs (inclusive); None: half of the cells, 50 of 100.
        num_probes_min: Fewest probing ports.
        num_probes_max: Most probing ports (inclusive).
        grid_size: Rows and columns of the chip, or one number for both.
        kwargs: `max_decaps` and further arguments of
            :class:`rl4co.envs.eda._placement.PlacementGenerator`.

    Returns:
        `locs [*B, N, 2]`, `probe [*B, N]` (True at ports), `action_mask [*B, N]`, and with
        `min_decaps` also `max_decaps [*B, 1]`.
    """

    def __init__(
        self,
        min_loc: float = 0.0,
        max_loc: float = 1.0,
        num_keepout_min: int = 1,
        num_keepout_max: int | None = None,
        num_probes_min: int = 2,
        num_probes_max: int = 5,
        *,
        grid_size: int | tuple[int, int] | None = None,
        **kwargs: Any,
    ) -> None:
        self.num_probes_max = check_count("num_probes_max", num_probes_max)
        self.num_probes_min = check_count("num_probes_min", num_probes_min, most=num_probes_max)
        super().__init__(
            min_loc, max_loc, num_keepout_min, num_keepout_max, grid_size=grid_size, **kwargs
        )

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        ports = self._integers(batch_size, self.num_probes_min, self.num_probes_max, rng)
        board, rank = self._board(batch_size, ports, rng)
        return TensorDict({**board, "probe": rank < ports}, batch_size=batch_size)
