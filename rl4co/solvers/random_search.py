"""Random search: the best of many random solutions."""

from __future__ import annotations

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.ops import batchify, unbatchify
from rl4co.decoding.logits import sample_weights
from rl4co.decoding.rollout import rollout
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import register_solver
from rl4co.solvers._evolution import Budget, make_rng

#: Solutions of an instance that are drawn side by side.
_AT_ONCE = 20


@register_solver("random_search")
def random_search(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    shots: int = 100,
    seed: int | None = 0,
) -> Tensor:
    """The best of `shots` solutions of any environment, drawn uniformly step by step.

    Args:
        env: Environment.
        td: State after reset.
        max_runtime: Seconds per instance; all instances share the sum.
        num_procs: Not needed here.
        shots: Solutions that are tried for each instance.
        seed: Seed of the actions; None draws from torch's global generator.

    Returns:
        Actions `[B, T]`.
    """
    budget = Budget(shots, max_runtime * len(td))
    rng = make_rng(seed, "random_search", td.device)

    def draw(state: TensorDictBase) -> TensorDictBase:
        return state.set("action", sample_weights(state["action_mask"].float(), rng))

    best: Tensor | None = None
    best_reward = torch.empty(0)
    while count := budget.take(_AT_ONCE):
        reward, _, actions = rollout(env, batchify(td, count), draw)
        reward, actions = unbatchify(reward, count), unbatchify(actions, count)  # [B, S], [B, S, T]
        top = reward.argmax(-1, keepdim=True)  # [B, 1]
        reward = reward.gather(-1, top).squeeze(-1)
        actions = actions.gather(1, top.unsqueeze(-1).expand(-1, 1, actions.shape[-1])).squeeze(1)
        if best is None:
            best, best_reward = actions, reward
            continue
        # Solutions of different rounds may differ in length; steps after the end change nothing.
        best, actions = _same_length(best, actions)
        better = reward > best_reward
        best = torch.where(better.unsqueeze(-1), actions, best)
        best_reward = torch.where(better, reward, best_reward)
    assert best is not None
    return best


def _same_length(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Solutions `[B, T]`, the shorter ones with their last action repeated."""
    longest = max(a.shape[-1], b.shape[-1])
    a, b = (torch.cat([x, x[:, -1:].expand(-1, longest - x.shape[-1])], -1) for x in (a, b))
    return a, b
