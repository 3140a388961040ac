"""Loads a saved policy, and the environment it was trained on if that was saved, too."""

from __future__ import annotations

import torch

from rl4co.core.errors import ConfigError
from rl4co.models.rl.saved_policies import load_policy

__all__ = ["find_device", "load_policy"]


def find_device(name: str) -> str:
    """The device called `name`, if torch can use it; "auto" is a GPU if there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # unknown name, or not in this build
        raise ConfigError(f"expected a device that torch can use, got {name!r}: {error}") from error
    return name
