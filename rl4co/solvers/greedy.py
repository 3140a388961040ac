"""Greedy: always take the action that adds most to the reward at once.

For problems that know what each action adds (`env.action_gains`), such as facility location and
maximum coverage, or whose formulation has a greedy construction of its own. It needs no other
package and solves all instances of a batch at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.decoding.rollout import rollout
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.hooks import defines_hook
from rl4co.solvers._base import register_solver
from rl4co.solvers._evolution import formulation_function


def knows_gains(env: RL4COEnvBase) -> bool:
    """Whether an environment knows what each action adds."""
    return defines_hook(env, "_action_gains")


def greedy_policy(
    env: RL4COEnvBase, noise: float = 0.0, rng: torch.Generator | None = None
) -> Callable[[TensorDictBase], TensorDictBase]:
    """A policy that takes the largest gain, for :func:`rl4co.decoding.rollout.rollout`.

    Args:
        env: Environment that knows gains.
        noise: Each gain is multiplied by a random number from `[1 - noise, 1]`.
        rng: Random stream of the noise.
    """

    def choose(td: TensorDictBase) -> TensorDictBase:
        gains = env.action_gains(dict(td.items()))  # [B, N]
        if noise > 0.0:
            draws = torch.rand(gains.shape, generator=rng, device=gains.device)
            gains = gains * (1.0 - noise * draws)
        return td.set("action", gains.masked_fill(~td["action_mask"], -torch.inf).argmax(-1))

    return choose


@register_solver("greedy")
def greedy(env: RL4COEnvBase, td: TensorDictBase) -> Tensor:
    """Solutions by the largest gain at each step; the first one of equals."""
    if knows_gains(env):
        return rollout(env, td, greedy_policy(env))[2]
    actions: Tensor = formulation_function(env, "greedy", "greedy")(env, td)
    return actions
