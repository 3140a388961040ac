"""Decap placement: sets of cells as genomes, and placements that grow by the best cell."""

from __future__ import annotations

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.registry import FORMULATIONS
from rl4co.decoding.rollout import expand_solutions
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.solvers.formulations._placement import PlacementFormulation

#: Candidates of the greedy construction that are scored at once.
_AT_ONCE = 2**14


class PlacementEncoding:
    """Cells with decaps as genomes `[T]`, see :class:`rl4co.solvers._evolution.Encoding`.

    Args:
        env: Environment.
        td: State after reset, batch `[B]`.
    """

    shots, population, elite, upper = 100, 20, 4, None

    def __init__(self, env: RL4COEnvBase, td: TensorDictBase) -> None:
        self.env, self.state = env, dict(td.items())
        self.free = self.state["action_mask"]  # [B, N]
        self.length = env.step_bounds(self.state)[1]
        self.limit = self.state.get("max_decaps")  # [B, 1], or None: as many as the length says
        self._step = torch.arange(self.length, device=self.free.device)
        self._half = self.length // 2 if self.limit is None else self.limit.unsqueeze(-1) // 2

    def draw(self, count: int, rng: torch.Generator | None) -> Tensor:
        """Uniform sets of free cells, in random order."""
        batch, num_cells = self.free.shape
        lottery = torch.rand(batch, count, num_cells, generator=rng, device=self.free.device)
        lottery = lottery.masked_fill(~self.free.unsqueeze(1), -1.0)
        return lottery.argsort(-1, descending=True)[..., : self.length]

    def breed(self, mothers: Tensor, fathers: Tensor, rng: torch.Generator | None) -> Tensor:
        """First half of the mother, second half of the father; no cell twice."""
        child = torch.where(self._step < self._half, mothers, fathers)  # [B, C, T]
        same = (child.unsqueeze(-1) == child.unsqueeze(-2)).tril(-1)  # [B, C, T, T]
        repeated = same.any(-1)
        # The n-th repeated cell is replaced by the n-th of the cells that are left, in random
        # order.
        unused = self.free.unsqueeze(1).expand(*child.shape[:-1], -1).scatter(-1, child, False)
        lottery = torch.rand(unused.shape, generator=rng, device=child.device)
        substitutes = lottery.masked_fill(~unused, -1.0).argsort(-1, descending=True)  # [B, C, N]
        rank = (repeated.cumsum(-1) - 1).clamp_min(0)  # [B, C, T]
        return torch.where(repeated, substitutes.gather(-1, rank), child)

    def score(self, genomes: Tensor) -> Tensor:
        """Rewards."""
        solutions = expand_solutions(self.state, genomes.shape[1])
        return self.env.get_reward(solutions, genomes, check_solution=False)

    def decode(self, genomes: Tensor) -> Tensor:
        """The cells; instances with fewer decaps name the first one again at the end."""
        if self.limit is None:
            return genomes
        return torch.where(self._step < self.limit, genomes, genomes[:, :1])


@FORMULATIONS.register("dpp")
class DecapPlacement(PlacementFormulation):
    """Sets of cells, scored as a whole."""

    solvers = ("greedy", "genetic", "nearest_cell")

    def genomes(self, env: RL4COEnvBase, td: TensorDictBase) -> PlacementEncoding:
        """Placements as genomes."""
        return PlacementEncoding(env, td)

    def greedy(self, env: RL4COEnvBase, td: TensorDictBase) -> Tensor:
        """Again and again the cell where one more decap raises the reward most.

        Every step scores all free cells, which makes about 1,600 rewards for 20 decaps on 100
        cells.
        """
        num_cells = td["action_mask"].shape[-1]
        rows = max(1, _AT_ONCE // num_cells)
        return torch.cat([_grow(env, dict(part.items())) for part in td.split(rows)])


def _grow(env: RL4COEnvBase, state: State) -> Tensor:
    """Placements `[B, T]`."""
    batch, num_cells = state["action_mask"].shape
    cells = torch.arange(num_cells, device=state["action_mask"].device)
    placed = torch.empty(batch, 0, dtype=torch.int64, device=cells.device)
    alternatives = expand_solutions(state, num_cells)  # [B, N]
    for _ in range(env.step_bounds(state)[1]):
        tried = torch.cat(
            [
                placed.unsqueeze(1).expand(-1, num_cells, -1),
                cells.view(1, -1, 1).expand(batch, -1, 1),
            ],
            -1,
        )  # [B, N, t + 1]
        reward = env.get_reward(alternatives, tried, check_solution=False)  # [B, N]
        chosen = reward.masked_fill(~state["action_mask"], -torch.inf).argmax(-1)  # [B]
        placed = torch.cat([placed, chosen.unsqueeze(-1)], -1)
        state = env.advance(state, chosen)
    return placed
