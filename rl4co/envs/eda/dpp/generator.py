"""Instances of the decap placement problem."""

from __future__ import annotations

import torch

from tensordict import TensorDict

from rl4co.envs.eda._placement import PlacementGenerator


class DPPGenerator(PlacementGenerator):
    """One probing port and some keep-outs on a chip, which is simulated unless files are given.

    Arguments are those of :class:`rl4co.envs.eda._placement.PlacementGenerator`.

    Returns:
        `locs [*B, N, 2]`, `probe [*B, 1]`, `action_mask [*B, N]`, and with `min_decaps` also
        `max_decaps [*B, 1]`.
    """

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        board, rank = self._board(batch_size, 1, rng)
        port = rank.argmin(-1, keepdim=True)  # [*B, 1]
        return TensorDict({**board, "probe": port}, batch_size=batch_size)
