"""Policies from any place: pretrained models by name, policy folders, Lightning checkpoints."""

from __future__ import annotations

import os

from collections.abc import Sequence
from typing import Any

from torch import nn

from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.pretrained import load_pretrained
from rl4co.pretrained import ModelSource, find_model


def load_policy(
    path: str | os.PathLike[str] | ModelSource,
    device: str = "cpu",
    allow_classes: Sequence[str | type] = (),
) -> tuple[Any, RL4COEnvBase | None]:
    """The policy of a pretrained model, a policy folder or a Lightning checkpoint.

    Args:
        path: Name of a pretrained model, folder written by `save_pretrained`, or checkpoint, see
            :func:`~rl4co.pretrained.find_model`.
        device: Device of the policy.
        allow_classes: Custom classes (or their module paths) that a folder or checkpoint may name;
            their code is imported.

    Returns:
        The policy, and the checkpoint's environment (None for a folder, which has none).
    """
    source = find_model(path)
    if not source.path.is_file():
        return load_pretrained(source, device, allow_classes), None
    from rl4co.models.rl.base import RL4COLitModule  # with Lightning, which folders do not need

    model = RL4COLitModule.load_from_checkpoint(
        source.path, map_location=device, allow_classes=allow_classes
    )
    return model.policy.to(device), model.env


def read_policy(policy: nn.Module | str | os.PathLike[str] | None) -> nn.Module | None:
    """A policy, or that of anything that :func:`load_policy` reads."""
    if policy is None or isinstance(policy, nn.Module):
        return policy
    loaded: nn.Module = load_policy(policy)[0]
    return loaded
