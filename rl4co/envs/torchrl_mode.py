"""TorchRL's specs of an environment, made from one of its states.

This file is the only one that knows TorchRL's specs. Two ways of stepping exist: the library's own
(`step` keeps no previous state) and TorchRL's (`_torchrl_mode=True`), which keeps the root state,
records the actions under `solution` and rewards an instance at the step that finishes it.
"""

from __future__ import annotations

import traceback

from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data import Binary, Bounded, Categorical, Composite, MultiCategorical, Unbounded

from rl4co.core.errors import ConfigError
from rl4co.envs.hooks import ProblemHooks

_DONE_KEYS = ("done", "terminated")


def make_specs(env: Any, td: TensorDictBase) -> None:
    """Sets the specs of an environment from a state without batch axes."""
    leaves = {key: _leaf_spec(value) for key, value in td.items() if key not in _DONE_KEYS}
    env.observation_spec = Composite(leaves, shape=torch.Size([]), device=env.device)
    numbers = env._action_numbers(td)
    env.action_spec = (
        Categorical(n=td["action_mask"].shape[-1], shape=torch.Size([]), device=env.device)
        if numbers is None
        else MultiCategorical(nvec=numbers, device=env.device)
    )
    env.reward_spec = Unbounded(shape=torch.Size([1]), device=env.device)
    env.done_spec = Composite(
        {key: Binary(n=1, dtype=torch.bool, device=env.device) for key in _DONE_KEYS},
        device=env.device,
    )


def reject_fixed_batch_axes(env: Any, instance: TensorDictBase, error: Exception) -> None:
    """Raises :class:`ConfigError` if hooks fail on one instance, but not on a batch of one.

    Args:
        env: The environment.
        instance: An instance without batch axes.
        error: The error with which they fail.
    """
    try:
        env._spec_state(instance.unsqueeze(0))
    except Exception:  # then something else is wrong
        return
    frames = traceback.extract_tb(error.__traceback__)
    hooks = [frame for frame in frames if hasattr(ProblemHooks, frame.name)]
    place = f"{hooks[-1].name} (line {hooks[-1].lineno})" if hooks else "a hook"
    raise ConfigError(
        f"expected hooks of {type(env).__name__} that work for any number of batch axes, also for "
        f"none, got {type(error).__name__} in {place}: {error}; index axes from the end, "
        "mask[..., 0] rather than mask[:, 0]"
    ) from error


def _leaf_spec(value: Tensor) -> Any:
    like: dict[str, Any] = {"shape": value.shape, "dtype": value.dtype, "device": value.device}
    if value.dtype == torch.bool:
        return Binary(n=value.shape[-1], **like)
    if value.dtype.is_floating_point:
        return Unbounded(**like)
    return Bounded(-1, torch.iinfo(value.dtype).max, **like)  # -1 stands for none


def write_action(solution: Tensor, i: Tensor, action: Tensor) -> Tensor:
    """The solution so far with `action` at step `i` (steps past the end are dropped)."""
    position = i.clamp_max(solution.shape[-1] - 1)  # [*B, 1]
    inside = i < solution.shape[-1]
    value = torch.where(inside, action.unsqueeze(-1), solution.gather(-1, position))  # [*B, 1]
    return solution.scatter(-1, position, value)  # [*B, T]
