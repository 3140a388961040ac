"""Helpers around training under their published names and signatures."""

from __future__ import annotations

import os

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from rl4co.core.ops import unbatchify
from rl4co.models.rl import losses, optimizers
from rl4co.tasks.instantiate import is_rank_zero

if TYPE_CHECKING:
    from lightning import LightningModule
    from torch.optim import Optimizer


# ---------------------------------------------------------------- optimizers


def get_pytorch_optimizers() -> list[str]:
    """Names of the optimizers of torch."""
    return optimizers.optimizer_names()


def get_pytorch_lr_schedulers() -> list[str]:
    """Names of the learning-rate schedulers of torch."""
    return optimizers.scheduler_names()


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


def remove_key(config: Mapping[str, Any], key: str = "wandb") -> dict[str, Any]:
    """The configuration without the keys that contain `key`."""
    return {name: value for name, value in config.items() if key not in name}


def clean_hydra_config(
    config: Mapping[str, Any],
    keep_value_only: bool = True,
    remove_keys: str | Sequence[str] = "wandb",
    clean_cfg_path: bool = True,
) -> DictConfig:
    """A configuration from what Weights and Biases keeps of it.

    Args:
        config: `"model/batch_size" → {"value": 512, ...}`, slashes standing for levels.
        keep_value_only: Whether values are under "value".
        remove_keys: Keys that contain one of these are left out.
        clean_cfg_path: Whether `paths.root_dir` becomes the working directory in all values.
    """
    for key in [remove_keys] if isinstance(remove_keys, str) else remove_keys:
        config = remove_key(config, key)
    nested: dict[str, Any] = {}
    for name, value in config.items():
        *levels, last = name.split("/")
        place = nested
        for level in levels:
            place = place.setdefault(level, {})
        place[last] = value["value"] if keep_value_only else value
    if clean_cfg_path:
        nested = _replace(nested, nested["paths"]["root_dir"], os.getcwd())
    return OmegaConf.create(nested)


def _replace(value: Any, old: str, new: str) -> Any:
    """`old` by `new` in all strings of a nested mapping."""
    if isinstance(value, Mapping):
        return {key: _replace(inner, old, new) for key, inner in value.items()}
    return value.replace(old, new) if isinstance(value, str) else value


def merge_with_defaults(_config: Any = None, **defaults: Any) -> dict[str, Any]:
    """Defaults with what a mapping says on top; any other value counts for all of them."""
    if _config is None:
        return defaults
    if isinstance(_config, Mapping | DictConfig):
        return {**defaults, **{str(key): value for key, value in _config.items()}}
    return dict.fromkeys(defaults, _config)


def save_file(path: str | os.PathLike[str], content: str) -> None:
    """Writes a text file, in the first process only."""
    if is_rank_zero():
        Path(path).write_text(content, encoding="utf-8")
