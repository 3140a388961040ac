"""Instances of the decap placement problem."""

from __future__ import annotations

from pathlib import Path

import torch

from tensordict import TensorDict

from rl4co.envs.eda._placement import PlacementGenerator


class DPPGenerator(PlacementGenerator):
    """One probing port and some keep-outs on a chip, which is simulated unless files are given.

    Args:
        min_loc: Smallest coordinate.
        max_loc: Where the longer side of the grid ends; the last cell lies a cell before it.
        num_keepout_min: Fewest keep-outs.
        num_keepout_max: Most keep-outs (inclusive); None: half of the cells, 50 of 100.
        max_decaps: Decaps to be placed; None: a fifth of the cells, 20 of 100.
        min_decaps: If given, each instance has its own number of decaps, drawn between this and
            `max_decaps` (inclusive).
        data_dir: Folder of the published files. None simulates the chip, and so do all of these.
        chip_file: Impedances of another chip, see :func:`rl4co.envs.eda._chip.read_chip`.
        decap_file: Impedances of another decap.
        freq_file: Frequencies of these.
        url: Nothing is downloaded here; refused.
        grid_size: Rows and columns of the chip, or one number for both; None: 10, or those of the
            file.

    Returns:
        `locs [*B, N, 2]`, `probe [*B, 1]`, `action_mask [*B, N]`, and with `min_decaps` also
        `max_decaps [*B, 1]`.
    """

    def __init__(
        self,
        min_loc: float = 0.0,
        max_loc: float = 1.0,
        num_keepout_min: int = 1,
        num_keepout_max: int | None = None,
        max_decaps: int | None = None,
        data_dir: str | Path | None = None,
        chip_file: str | Path | None = None,
        decap_file: str | Path | None = None,
        freq_file: str | Path | None = None,
        url: str | None = None,
        *,
        min_decaps: int | None = None,
        grid_size: int | tuple[int, int] | None = None,
    ) -> None:
        super().__init__(
            min_loc, max_loc, num_keepout_min, num_keepout_max, max_decaps, min_decaps, data_dir,
            chip_file, decap_file, freq_file, url, grid_size, ports=1,
        )  # fmt: skip

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        board, rank = self._board(batch_size, 1, rng)
        port = rank.argmin(-1, keepdim=True)  # [*B, 1]
        return TensorDict({**board, "probe": port}, batch_size=batch_size)
