"""Validation and test with several copies of each instance: augmentation, and the best results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from rl4co.data.augment import StateAugmentation, has_coordinates
from rl4co.envs.base import RL4COEnvBase


def default_augmentation(
    env: RL4COEnvBase,
    num_augment: int | None,
    augment_fn: Any,
    first_aug_identity: bool,
    feats: Sequence[str] | None,
) -> StateAugmentation | None:
    """The augmentation with these settings, or None if there is but one copy of each instance.

    Without a number it is 8, or 1 for problems that have no coordinates to augment.
    """
    if num_augment is None:
        num_augment = 8 if feats or has_coordinates(env.instance_shapes) else 1
    if num_augment <= 1:
        return None
    augmentation = StateAugmentation(num_augment, augment_fn, first_aug_identity, feats=feats)
    env.check_augmentation(augment_fn)
    return augmentation


def best_rewards(reward: Tensor, augment: StateAugmentation | None) -> dict[str, Tensor]:
    """Best solutions of the original instance, and of all its copies: `[B, A, S]` → `[B]` each.

    Where the original is not the first copy, the first of the two is the mean over the copies.
    """
    best = reward.amax(-1)  # [B, A]
    original_first = augment is None or augment.first_aug_identity
    return {
        "max_reward": best[:, 0] if original_first else best.mean(-1),
        "max_aug_reward": best.amax(-1),
    }
