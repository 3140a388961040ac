"""Multi-start as functions of a state and an environment, next to the environment's own methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl4co.core.registry import ENVS
from rl4co.envs.arguments import check_is_environment

if TYPE_CHECKING:
    from tensordict import TensorDictBase
    from torch import Tensor

    from rl4co.envs.base import RL4COEnvBase


def get_num_starts(td: TensorDictBase, env_name: RL4COEnvBase | str) -> int:
    """Number of distinct first actions of the instance that has most of them.

    Args:
        td: State after `reset`.
        env_name: The environment, or its name.
    """
    # The number depends on the instances alone, so any environment of that name can tell.
    env = ENVS[env_name]() if isinstance(env_name, str) else env_name
    check_is_environment(env)
    return env.get_num_starts(td)


def select_start_nodes(td: TensorDictBase, env: RL4COEnvBase, num_starts: int) -> Tensor:
    """First actions, distinct where an instance has as many, starts outermost.

    Args:
        td: State after `reset`.
        env: The environment.
        num_starts: Starts per instance.

    Shapes:
        `[S * B]`, row `s * B + b` is start s of instance b
    """
    return env.select_start_nodes(td, num_starts)
