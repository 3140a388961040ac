"""What goes into the baselines of REINFORCE and what comes out of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.envs.base import RL4COEnvBase


class BaselineOutput(NamedTuple):
    """Values (broadcastable to the reward) and a loss to add (0 if there is nothing to learn)."""

    value: Tensor
    loss: Tensor


class EpochContext(NamedTuple):
    """What a baseline may use at the end of an epoch.

    Attributes:
        policy: The policy in training.
        env: The environment.
        epoch: Number of the epoch that has ended.
        batch_size: Instances per call of a policy.
        seed: Seed of the run.
        device: Device of the policy.
        draw: (size, rng) → fresh instances like those of training (default: the generator's).
        dataset_size: Instances of the validation set.
    """

    policy: nn.Module
    env: RL4COEnvBase
    epoch: int
    batch_size: int
    seed: int
    device: torch.device
    draw: Callable[[int, torch.Generator], TensorDictBase] | None = None
    dataset_size: int | None = None
