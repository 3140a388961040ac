"""Sampling of a search: separate random numbers, and a solution to imitate."""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping

import torch

from torch import Tensor

from rl4co.decoding.logits import sample_actions
from rl4co.decoding.strategies import Sampling


@dataclasses.dataclass(frozen=True)
class ImitatingSampling(Sampling):
    """Sampling in which the last solution of each row is the incumbent.

    All instances meet the same random numbers: what is drawn for one of them does not depend on
    the others in its batch.

    Args:
        batch: Instances B of the rows `[R]`, R = K · B.
        incumbent: Actions `[R, T]` of the last solution, -1 after their ends; None: it is sampled
            like the others.
    """

    batch: int = 1
    incumbent: Tensor | None = None

    def choose(self, logits: Tensor, step: int, state: Mapping[str, Tensor]) -> Tensor:
        """Actions `[R, S]`."""
        rows, solutions, _ = logits.shape
        shape = (rows // self.batch, 1, solutions, 1)
        uniform = torch.rand(shape, generator=self.rng, device=logits.device, dtype=logits.dtype)
        uniform = uniform.expand(-1, self.batch, -1, -1).flatten(0, 1)  # [R, S, 1]
        action = sample_actions(logits, uniform=uniform)
        if self.incumbent is None:
            return action
        # A finished solution waits for its batch mates with an action that changes nothing.
        last = logits[:, -1].argmax(-1)  # [R]
        if step < self.incumbent.shape[-1]:
            incumbent_action = self.incumbent[:, step]
            last = torch.where(incumbent_action < 0, last, incumbent_action)
        return torch.cat([action[:, :-1], last.unsqueeze(-1)], -1)
