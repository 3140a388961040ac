"""Random search: the best of many random solutions."""

from __future__ import annotations

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.ops import batchify, unbatchify
from rl4co.decoding.rollout import rollout
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import keep_better, register_solver
from rl4co.solvers._evolution import Budget, make_rng
from rl4co.solvers.random import uniform_policy

#: Solutions of an instance that are drawn side by side.
_AT_ONCE = 20


@register_solver("random_search")
def random_search(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    shots: int = 100,
    seed: int | None = 0,
) -> Tensor:
    """The best of `shots` solutions of any environment, drawn uniformly step by step.

    Options:
        max_runtime: Seconds per instance; all instances share the sum.
        shots: Solutions that are tried for each instance.
        seed: Seed of the actions; None draws from torch's global generator.
    """
    budget = Budget(shots, max_runtime * len(td))
    rng = make_rng(seed, "random_search", td.device)

    best: tuple[Tensor, Tensor] | None = None
    while count := budget.take(_AT_ONCE):
        reward, _, actions = rollout(env, batchify(td, count), uniform_policy(rng))
        reward, actions = unbatchify(reward, count), unbatchify(actions, count)  # [B, S], [B, S, T]
        top = reward.argmax(-1, keepdim=True)  # [B, 1]
        reward = reward.gather(-1, top).squeeze(-1)
        actions = actions.gather(1, top.unsqueeze(-1).expand(-1, 1, actions.shape[-1])).squeeze(1)
        best = keep_better(best, (actions, reward)) if best else (actions, reward)
    assert best is not None
    return best[0]
