"""The search on one batch of instances: what a transductive method writes."""

from __future__ import annotations

import abc

from typing import NamedTuple

import torch

from torch import Tensor, nn


class Candidates(NamedTuple):
    """What one iteration found.

    Attributes:
        actions: Solutions `[B, C, T]`.
        rewards: Theirs `[B, C]`.
        loss: To be minimised.
    """

    actions: Tensor
    rewards: Tensor
    loss: Tensor


class Progress(NamedTuple):
    """Where a search is, after each iteration.

    Attributes:
        first: Position of the batch in the data set.
        size: Instances of the batch.
        iteration: Iterations of the batch so far.
        reward: Mean reward of the iteration's solutions.
        best: Mean reward of the batch's incumbents.
        loss: Loss of the iteration.
    """

    first: int
    size: int
    iteration: int
    reward: float
    best: float
    loss: float


class InstanceSearch(abc.ABC):
    """The search on one batch of instances, begun from the original weights.

    Attributes:
        adapted: What is optimised; nothing of it is shared with another batch.
    """

    adapted: nn.Module

    @abc.abstractmethod
    def sample(self, incumbent: Tensor | None, rng: torch.Generator) -> Candidates:
        """Solutions of the policy as it is now, and a loss that makes it better.

        Args:
            incumbent: Best solutions so far `[B, T]`, -1 after their ends; None at first.
            rng: Random stream of this iteration.
        """

    def intensify(self, iteration: int) -> tuple[Tensor, Tensor] | None:
        """Hook: more solutions `[B, C, T]` of the policy as it is now, and their rewards `[B, C]`.

        Args:
            iteration: Number of the iteration, from 0 on.
        """
        return None
