"""Random solutions: every allowed action is equally likely."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.rng import derive_generator
from rl4co.decoding.logits import sample_weights
from rl4co.decoding.rollout import rollout
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import SolverResult, keep_better, register_solver


def uniform_policy(rng: torch.Generator | None) -> Callable[[TensorDictBase], TensorDictBase]:
    """A policy that draws from the allowed actions, for :func:`rl4co.decoding.rollout.rollout`."""

    def draw(state: TensorDictBase) -> TensorDictBase:
        return state.set("action", sample_weights(state["action_mask"].float(), rng))

    return draw


@register_solver("random")
def random(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    seed: int | None = 0,
    samples: int = 1,
) -> SolverResult:
    """Solutions of any environment, drawn uniformly step by step.

    Options:
        seed: Seed of the actions; None draws from torch's global generator.
        samples: Solutions of each instance, of which the best counts.

    Returns:
        Actions `[B, T]` and, with several samples, mean costs `[B]`.
    """
    check_at_least(1, samples=samples)
    rng = None if seed is None else derive_generator(seed, "random", device=td.device or "cpu")

    best: tuple[Tensor, Tensor] | None = None
    total = torch.zeros(td.batch_size, device=td.device)
    for _ in range(samples):
        reward, _, actions = rollout(env, td, uniform_policy(rng))
        best = (actions, reward) if best is None else keep_better(best, (actions, reward))
        total = total + reward
    assert best is not None
    return SolverResult(best[0], mean_costs=-total / samples if samples > 1 else None)
