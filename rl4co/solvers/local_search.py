"""The local search of an environment as a solver: it improves solutions until no move helps.

It needs no other package, and no time limit: it ends in a local optimum, in well under a second for
a few hundred nodes. Only some problems have one, see `env.local_search`.
"""

from __future__ import annotations

import time

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.rng import derive_generator
from rl4co.decoding.rollout import rollout
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import keep_better, register_solver
from rl4co.solvers._cancellation import is_cancelled
from rl4co.solvers.greedy import greedy, greedy_policy, knows_gains
from rl4co.solvers.nearest_neighbor import nearest_neighbor
from rl4co.solvers.random import random

#: Gains are multiplied by random numbers from 1 minus this to 1, so that starts differ.
GREEDY_NOISE = 0.3


@register_solver("local_search")
def local_search(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    initial: Tensor | None = None,
    starts: int = 1,
    seed: int = 0,
) -> Tensor:
    """Local optima; the same arguments give the same ones.

    Options:
        max_runtime: Seconds per instance after which no further start begins.
        initial: Solutions to improve `[B, T]`; None: greedy ones, or those of the nearest
            neighbour.
        starts: Solutions of each instance that are improved, of which the best counts. All but the
            first begin with randomised greedy solutions or, for problems without gains, random
            ones.
        seed: Seed of the further starts.
    """
    check_at_least(1, starts=starts)
    if initial is None:
        initial = (greedy if knows_gains(env) else nearest_neighbor)(env, td)[0]
    end = time.perf_counter() + max_runtime * len(td)
    best = _improve(env, td, initial)
    for start in range(1, starts):
        if is_cancelled() or time.perf_counter() > end:
            break
        best = keep_better(best, _improve(env, td, _random_start(env, td, seed, start)))
    return best[0]


def _improve(env: RL4COEnvBase, td: TensorDictBase, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Local optima `[B, T]` and their rewards `[B]`."""
    improved = env.local_search(td, actions)
    return improved, env.get_reward(td, improved, check_solution=False)


def _random_start(env: RL4COEnvBase, td: TensorDictBase, seed: int, start: int) -> Tensor:
    """Another solution of each instance `[B, T]`."""
    rng: torch.Generator = derive_generator(seed, "start", start, device=td.device or "cpu")
    if knows_gains(env):
        return rollout(env, td, greedy_policy(env, GREEDY_NOISE, rng))[2]
    return random(env, td, seed=int(torch.randint(2**31, (), generator=rng)))[0]
