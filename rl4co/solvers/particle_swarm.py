"""Particle swarm optimization: solutions fly towards the best that they and the swarm have seen.

$$v \\leftarrow w v + c_1 r_1 (x^{own} - x) + c_2 r_2 (x^{swarm} - x), \\qquad x \\leftarrow x + v$$
"""

from __future__ import annotations

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import UnsupportedError
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import register_solver
from rl4co.solvers._evolution import Budget, best_genomes, formulation_function, make_rng

#: Inertia, and pull towards the own and the swarm's best.
INERTIA, BEST_PULL, SWARM_PULL = 0.7, 1.5, 1.5


@register_solver("particle_swarm")
def particle_swarm(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    shots: int | None = None,
    population: int | None = None,
    seed: int | None = 0,
) -> Tensor:
    """Solutions by particle swarm optimization, all instances at once.

    Options:
        max_runtime: Seconds per instance; all instances share the sum.
        shots: Solutions that are tried for each instance; None: as the encoding says.
        population: Particles; None: as the encoding says.
        seed: Seed of all choices; None draws from torch's global generator.
    """
    encoding = formulation_function(env, "genomes", "particle_swarm")(env, td)
    if encoding.upper is None:
        raise UnsupportedError(
            f"expected an encoding of {env.name} by numbers for a swarm, got labels; use genetic"
        )
    budget = Budget(encoding.shots if shots is None else shots, max_runtime * len(td))
    rng = make_rng(seed, "particle_swarm", td.device)
    position = encoding.draw(budget.take(population or encoding.population), rng)  # [B, P, L]
    speed = torch.zeros_like(position)
    best, best_rewards = position, encoding.score(position)  # [B, P]
    while budget.take(position.shape[1]) == position.shape[1]:
        swarm = best_genomes(best, best_rewards).unsqueeze(1)  # [B, 1, L]
        pulls = torch.rand(2, *position.shape, generator=rng, device=position.device)
        speed = (
            INERTIA * speed
            + BEST_PULL * pulls[0] * (best - position)
            + SWARM_PULL * pulls[1] * (swarm - position)
        )
        position = (position + speed).clamp(0.0, encoding.upper * (1.0 - 1e-6))
        rewards = encoding.score(position)
        better = rewards > best_rewards
        best = torch.where(better.unsqueeze(-1), position, best)
        best_rewards = torch.where(better, rewards, best_rewards)
    return encoding.decode(best_genomes(best, best_rewards))
