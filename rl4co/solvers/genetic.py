"""Genetic algorithm: the best solutions are crossed with each other, generation by generation.

The settings for decap placement are those that DevFormer (Kim et al., 2023) is compared with: a
population of 20, of which the 4 best live on; parents come from the better half; a child has the
first half of one parent and the second half of the other, and cells that occur twice are replaced
by random free ones.
"""

from __future__ import annotations

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import register_solver
from rl4co.solvers._evolution import (
    Budget,
    best_genomes,
    formulation_function,
    make_rng,
    pick,
)


@register_solver("genetic")
def genetic(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    shots: int | None = None,
    population: int | None = None,
    elite: int | None = None,
    seed: int | None = 0,
) -> Tensor:
    """Solutions by a genetic algorithm, all instances at once.

    Options:
        max_runtime: Seconds per instance; all instances share the sum.
        shots: Solutions that are tried for each instance; None: 100 for decap placement, 25,000
            for the flow shop.
        population: Genomes of a generation; None: 20 for decap placement, 25 for the flow shop.
        elite: The best of a generation, which live on without being scored again.
        seed: Seed of all choices; None draws from torch's global generator.
    """
    encoding = formulation_function(env, "genomes", "genetic")(env, td)
    size = encoding.population if population is None else population
    kept = encoding.elite if elite is None else elite
    if not 1 <= kept < size:
        raise ConfigError(f"expected 1 <= elite < population, got {kept} and {size}")
    budget = Budget(encoding.shots if shots is None else shots, max_runtime * len(td))
    rng = make_rng(seed, "genetic", td.device)
    genomes = encoding.draw(budget.take(size), rng)  # [B, P, L]
    rewards = encoding.score(genomes)  # [B, P]
    while genomes.shape[1] > 1 and (count := budget.take(size - kept)):
        order = rewards.argsort(-1, descending=True)  # [B, P]
        genomes, rewards = pick(genomes, order), rewards.gather(-1, order)
        mothers, fathers = draw_parents(len(td), max(genomes.shape[1] // 2, 2), count, rng)
        children = encoding.breed(
            pick(genomes, mothers.to(td.device)), pick(genomes, fathers.to(td.device)), rng
        )
        genomes = torch.cat([genomes[:, :kept], children], 1)
        rewards = torch.cat([rewards[:, :kept], encoding.score(children)], 1)
    return encoding.decode(best_genomes(genomes, rewards))


def draw_parents(
    batch: int, num_parents: int, count: int, rng: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Pairs of different parents out of the first `num_parents`: two tensors `[B, C]`."""
    device = None if rng is None else rng.device
    size = (batch, count)
    mothers = torch.randint(num_parents, size, generator=rng, device=device)
    further = torch.randint(1, num_parents, size, generator=rng, device=device)
    return mothers, (mothers + further) % num_parents
