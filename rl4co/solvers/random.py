"""Random solutions: every allowed action is equally likely."""

from __future__ import annotations

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.rng import derive_generator
from rl4co.decoding.logits import sample_weights
from rl4co.decoding.rollout import rollout
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import register_solver


@register_solver("random")
def random(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    seed: int | None = 0,
) -> Tensor:
    """Solutions of any environment, drawn uniformly step by step.

    Args:
        env: Environment.
        td: State after reset.
        max_runtime: Not needed here.
        num_procs: Not needed here.
        seed: Seed of the actions; None draws from torch's global generator.

    Returns:
        Actions `[B, T]`.
    """
    rng = None if seed is None else derive_generator(seed, "random", device=td.device or "cpu")

    def draw(state: TensorDictBase) -> TensorDictBase:
        return state.set("action", sample_weights(state["action_mask"].float(), rng))

    return rollout(env, td, draw)[2]
