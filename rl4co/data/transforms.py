"""Published import path of augmentation."""

from __future__ import annotations

from rl4co.data.augment import (
    StateAugmentation,
    dihedral_8_augmentation,
    min_max_normalize,
    symmetric_augmentation,
)

__all__ = [
    "StateAugmentation",
    "dihedral_8_augmentation",
    "min_max_normalize",
    "symmetric_augmentation",
]
