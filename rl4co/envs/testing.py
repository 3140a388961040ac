"""Environments of a given size and instances to try things on."""

from __future__ import annotations

from typing import Any

import torch

from tensordict import TensorDict, TensorDictBase

from rl4co.core.registry import ENVS
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.improvement import is_improvement


def constructive_names() -> list[str]:
    """Environments whose steps construct solutions."""
    return [name for name in ENVS.names() if not is_improvement(ENVS[name])]


def improvement_names() -> list[str]:
    """Environments whose steps change complete solutions."""
    return [name for name in ENVS.names() if is_improvement(ENVS[name])]


def make_sized_env(name: str, size: int, **kwargs: Any) -> RL4COEnvBase:
    """The environment called `name` with instances of a size.

    Args:
        name: Name of the environment.
        size: Number of nodes, jobs, sets or items. Problems that come in one size only keep it.
        kwargs: Further arguments of the environment.
    """
    argument = size_argument(name)
    return ENVS[name](generator_params={} if argument is None else {argument: size}, **kwargs)


def size_argument(name: str) -> str | None:
    """Argument of the generator that sets the size of an environment's instances, if there is one.

    Args:
        name: Name of the environment.
    """
    return ENVS[name].generator_cls.size_name()


def generate_env_data(env: str, size: int, batch_size: int) -> tuple[RL4COEnvBase, TensorDict]:
    """An environment and fresh instances of it.

    Args:
        env: Name of the environment.
        size: See :func:`make_sized_env`.
        batch_size: Number of instances.

    Returns:
        The environment and instances with batch size `[batch_size]`, not reset yet.
    """
    made = make_sized_env(env, size)
    return made, made.generate(batch_size)


def enumerate_solutions(env: RL4COEnvBase, instance: TensorDictBase) -> list[list[int]]:
    """Every solution of one tiny instance that the mask allows, found breadth first.

    Args:
        env: The environment.
        instance: An instance without batch axis.

    Returns:
        All action sequences from reset to the first state that is done.
    """
    state = dict(env.reset(instance.unsqueeze(0)).items())  # [R, ...], one row per prefix
    prefixes = torch.empty(1, 0, dtype=torch.int64, device=env.device)  # [R, t]
    solutions: list[list[int]] = []
    while len(prefixes):
        row, action = state["action_mask"].nonzero(as_tuple=True)
        state = env.advance({key: value[row] for key, value in state.items()}, action)
        prefixes = torch.cat([prefixes[row], action.unsqueeze(-1)], -1)
        done = state["done"].squeeze(-1)  # [R]
        solutions += prefixes[done].tolist()
        state = {key: value[~done] for key, value in state.items()}
        prefixes = prefixes[~done]
    return solutions
