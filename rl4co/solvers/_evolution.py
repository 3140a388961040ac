"""Formulations for methods that evolve a population, and their record of the best solutions.

Solutions are *genomes*, rows of numbers that a problem's formulation can draw, cross, score and
turn into actions (:class:`Encoding`). All instances of a batch evolve side by side.
"""

from __future__ import annotations

import time

from collections.abc import Callable
from typing import Any, Protocol

import torch

from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.errors import UnsupportedError
from rl4co.core.registry import FORMULATIONS
from rl4co.core.rng import derive_generator
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._cancellation import is_cancelled


class Encoding(Protocol):
    """Solutions of a batch of instances as genomes.

    Attributes:
        shots: Solutions that are tried for each instance by default.
        population: Genomes in a generation by default.
        elite: The best of them, which live on.
        upper: Genomes are numbers in `[0, upper)` that can be added and scaled; None if they are
            labels, which cannot.
    """

    shots: int
    population: int
    elite: int
    upper: float | None

    def draw(self, count: int, rng: torch.Generator | None) -> Tensor:
        """Random genomes `[B, count, L]`."""
        ...

    def breed(self, mothers: Tensor, fathers: Tensor, rng: torch.Generator | None) -> Tensor:
        """A child `[B, C, L]` of each pair of parents `[B, C, L]`."""
        ...

    def score(self, genomes: Tensor) -> Tensor:
        """Rewards `[B, C]` of genomes `[B, C, L]`."""
        ...

    def decode(self, genomes: Tensor) -> Tensor:
        """Actions `[B, T]` of genomes `[B, L]`."""
        ...


def formulation_function(env: RL4COEnvBase, name: str, method: str) -> Callable[..., Any]:
    """A function of the environment's formulation.

    Args:
        env: Environment.
        name: The function.
        method: Who needs it, for the message.
    """
    formulation = FORMULATIONS.get(env.name)
    function = None if formulation is None else getattr(formulation(), name, None)
    if function is None:
        supported = [key for key in FORMULATIONS.names() if hasattr(FORMULATIONS[key], name)]
        raise UnsupportedError(
            f"expected an environment with a formulation for {method} ({', '.join(supported)}), "
            f"got {env.name!r}; register a formulation with `{name}` (FORMULATIONS)"
        )
    return function


class Budget:
    """Shots and seconds that are left.

    Args:
        shots: Solutions that may be tried for each instance.
        seconds: Time for all instances.
    """

    def __init__(self, shots: int, seconds: float) -> None:
        check_at_least(1, shots=shots)
        self.shots, self.deadline = shots, time.perf_counter() + seconds
        self.used = False  # a first solution is needed in any case

    def take(self, wanted: int) -> int:
        """How many of the wanted shots may be taken now; 0 at the end."""
        if time.perf_counter() > self.deadline or (self.used and is_cancelled()):
            return 0
        granted, self.used = min(wanted, self.shots), True
        self.shots -= granted
        return granted


def make_rng(seed: int | None, purpose: str, device: torch.device | None) -> torch.Generator | None:
    """A random stream; None draws from torch's global generator."""
    return None if seed is None else derive_generator(seed, purpose, device=device or "cpu")


def pick(genomes: Tensor, index: Tensor) -> Tensor:
    """Some genomes of each instance: `[B, P, L], [B, C]` → `[B, C, L]`."""
    return genomes.gather(1, index.unsqueeze(-1).expand(-1, -1, genomes.shape[-1]))


def best_genomes(genomes: Tensor, rewards: Tensor) -> Tensor:
    """The best genome of each instance: `[B, P, L], [B, P]` → `[B, L]`."""
    return pick(genomes, rewards.argmax(-1, keepdim=True)).squeeze(1)
