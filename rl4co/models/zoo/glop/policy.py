"""Policy of GLOP: a partition of the customers into tours (Ye et al., 2024).

Paper: https://arxiv.org/abs/2312.08224. Original code: henry-yeh/GLOP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.models.policies.nonautoregressive import NARGNNPolicy
from rl4co.models.zoo.glop.adapter import CVRPAdapter, TourFunction, TSPAdapter, make_tour_solver
from rl4co.models.zoo.glop.revision import Reviser


class GLOPPolicy(NARGNNPolicy):
    """Weights of edges by which customers are put together; tours are the sub-solver's matter.

    Args:
        n_samples: Partitions per instance.
        subprob_solver: How tours are solved: "insertion", "search" (insertion, 2-opt and Or-opt),
            "ils", "lkh" or "reviser"; or a function of coordinates `[P, n, 2]` → orders `[P, n]`.
        kwargs: Further arguments, and those not listed here: see :class:`NARGNNPolicy`.
    """

    def __init__(
        self,
        env_name: str = "cvrpmvc",
        embed_dim: int = 48,
        n_samples: int = 20,
        subprob_solver: str | TourFunction = "insertion",
        **kwargs: Any,
    ) -> None:
        check_at_least(1, n_samples=n_samples)
        super().__init__(
            env_name=env_name,
            embed_dim=embed_dim,
            **{"by_node": True, **kwargs},
        )
        self.n_samples = n_samples
        self.subprob_solver = subprob_solver
        self.revisers: Sequence[Reviser] = ()
        if subprob_solver != "reviser":
            make_tour_solver(subprob_solver)  # rejects unknown names early

    @property
    def _has_depot(self) -> bool:
        """Whether solutions fall into tours; without a depot they are one tour."""
        embedding = getattr(self.encoder, "edge_embedding", None)
        return getattr(embedding, "has_hub", True)

    @torch.no_grad()
    def solve_subproblems(
        self,
        td: TensorDictBase,
        actions: Tensor,
        subprob_solver: str | TourFunction | None = None,
    ) -> Tensor:
        """Solutions with each of their tours solved anew: `[B, S, T]` → `[B, S, T']`.

        Args:
            td: State after reset, batch `[B]`.
            actions: Solutions, the depot between tours.
            subprob_solver: Replaces the policy's sub-solver.
        """
        solver = make_tour_solver(subprob_solver or self.subprob_solver, self.revisers)
        make_adapter = CVRPAdapter if self._has_depot else TSPAdapter
        points, rows = td["locs"].double().cpu().numpy(), actions.cpu().numpy()
        solved = []
        for b in range(len(rows)):
            adapter = make_adapter(points[b])
            solved.append([adapter.solve(row, solver) for row in rows[b]])
        width = max(max(len(row) for row in part) for part in solved)
        result = np.zeros((*actions.shape[:2], width), dtype=np.int64)
        for b, part in enumerate(solved):
            for s, row in enumerate(part):
                result[b, s, : len(row)] = row
        return torch.from_numpy(result).to(actions.device)
