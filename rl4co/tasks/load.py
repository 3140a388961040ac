"""Loads a saved policy, and the environment it was trained on if that was saved, too."""

from __future__ import annotations

import os

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rl4co.core.errors import ConfigError
from rl4co.envs.base import RL4COEnvBase


def load_policy(
    path: str | os.PathLike[str], device: str = "cpu", allow_classes: Sequence[str | type] = ()
) -> tuple[Any, RL4COEnvBase | None]:
    """The policy of a Lightning checkpoint, or of a folder written by `save_pretrained`.

    Args:
        path: Checkpoint file or folder.
        device: Device of the policy.
        allow_classes: Custom classes (or their module paths) that a folder may name; their code is
            imported.

    Returns:
        The policy, and the checkpoint's environment (None for a folder, which has none).
    """
    source = Path(path)
    if source.is_dir():
        from rl4co.models.policies.pretrained import load_pretrained

        return load_pretrained(source, device, allow_classes), None
    if source.is_file():
        from rl4co.models.rl.base import RL4COLitModule

        model = RL4COLitModule.load_from_checkpoint(source, map_location=device)
        return model.policy.to(device), model.env
    raise FileNotFoundError(
        f"expected a checkpoint file or a folder written by save_pretrained, got no such path: "
        f"{source}"
    )


def find_device(name: str) -> str:
    """The device called `name`, if torch can use it; "auto" is a GPU if there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # unknown name, or not in this build
        raise ConfigError(f"expected a device that torch can use, got {name!r}: {error}") from error
    return name
