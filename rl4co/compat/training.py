"""Helpers around training under their published names and signatures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from omegaconf import DictConfig
from torch import Tensor, nn

from rl4co.core.ops import unbatchify
from rl4co.models.rl import losses, optimizers

if TYPE_CHECKING:
    from lightning import LightningModule
    from torch.optim import Optimizer


# ---------------------------------------------------------------- optimizers


def create_optimizer(
    parameters: Iterable[nn.Parameter], optimizer_name: str, **optimizer_kwargs: Any
) -> Optimizer:
    """The optimizer called `optimizer_name`; `optimizer_kwargs` are its arguments."""
    return optimizers.create_optimizer(parameters, optimizer_name, optimizer_kwargs)


def create_scheduler(optimizer: Optimizer, scheduler_name: str, **scheduler_kwargs: Any) -> Any:
    """The scheduler called `scheduler_name`; `scheduler_kwargs` are its arguments."""
    return optimizers.create_scheduler(optimizer, scheduler_name, scheduler_kwargs)


# ---------------------------------------------------------------- losses of Sym-NCO


def problem_symmetricity_loss(reward: Tensor, log_likelihood: Tensor, dim: int = 1) -> Tensor | int:
    """REINFORCE with the mean over augmented copies as baseline, 0 for a single copy."""
    return _shared_loss(reward, log_likelihood, dim)


def solution_symmetricity_loss(
    reward: Tensor, log_likelihood: Tensor, dim: int = -1
) -> Tensor | int:
    """REINFORCE with the mean over starts as baseline, 0 for a single start."""
    return _shared_loss(reward, log_likelihood, dim)


def invariance_loss(proj_embed: Tensor, num_augment: int) -> Tensor:
    """Minus the similarity of the other copies with the first, summed over copies.

    Args:
        proj_embed: Projected embeddings, copies outermost `[A * B, N, D]`.
        num_augment: Copies A.
    """
    return (num_augment - 1) * losses.invariance_loss(unbatchify(proj_embed, num_augment))


def _shared_loss(reward: Tensor, log_likelihood: Tensor, dim: int) -> Tensor | int:
    if reward.shape[dim] < 2:
        return 0
    return losses.reinforce_loss(losses.shared_advantage(reward, dim), log_likelihood)


# ---------------------------------------------------------------- configurations and devices


def get_lightning_device(lit_module: LightningModule) -> torch.device:
    """The device of a module, or the one that its trainer will move it to."""
    trainer = getattr(lit_module, "_trainer", None)
    device: torch.device = lit_module.device if trainer is None else trainer.strategy.root_device
    return device


def merge_with_defaults(_config: Any = None, **defaults: Any) -> dict[str, Any]:
    """Defaults, updated by a mapping; any other value replaces all of them."""
    if _config is None:
        return defaults
    if isinstance(_config, Mapping | DictConfig):
        return {**defaults, **{str(key): value for key, value in _config.items()}}
    return dict.fromkeys(defaults, _config)
