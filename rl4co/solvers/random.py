"""Random solutions: every allowed action is equally likely."""

from __future__ import annotations

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.rng import derive_generator
from rl4co.decoding.logits import sample_weights
from rl4co.decoding.rollout import rollout
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import SolverResult, keep_better, register_solver


@register_solver("random")
def random(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    seed: int | None = 0,
    samples: int = 1,
) -> SolverResult:
    """Solutions of any environment, drawn uniformly step by step.

    Args:
        env: Environment.
        td: State after reset.
        max_runtime: Not needed here.
        num_procs: Not needed here.
        seed: Seed of the actions; None draws from torch's global generator.
        samples: Solutions of each instance, of which the best counts.

    Returns:
        Actions `[B, T]` and, with several samples, mean costs `[B]`.
    """
    check_at_least(1, samples=samples)
    rng = None if seed is None else derive_generator(seed, "random", device=td.device or "cpu")

    def draw(state: TensorDictBase) -> TensorDictBase:
        return state.set("action", sample_weights(state["action_mask"].float(), rng))

    best: tuple[Tensor, Tensor] | None = None
    total = torch.zeros(td.batch_size, device=td.device)
    for _ in range(samples):
        reward, _, actions = rollout(env, td, draw)
        best = (actions, reward) if best is None else keep_better(best, (actions, reward))
        total = total + reward
    assert best is not None
    return SolverResult(best[0], mean_costs=-total / samples if samples > 1 else None)
