"""Pheromone on candidate edges: deposits along solutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from torch import Tensor

from rl4co.core.graphs import CandidateGraph
from rl4co.kernels import compiled


def deposit(
    graph: CandidateGraph,
    pheromone: Tensor,
    actions: Tensor,
    amount: Tensor,
    symmetric: bool = True,
) -> Tensor:
    """Pheromone after the deposits of solutions; edges that are not candidates get none.

    Tours are closed; with a hub, solutions begin and end there, and waiting there deposits nothing.

    Args:
        graph: Candidate edges.
        pheromone: `[B, E]`; not modified.
        actions: Solutions `[B, A, T]`.
        amount: Deposit of each solution on each of its edges, `[B, A]`.
        symmetric: Whether an edge gets it in both directions.

    Returns:
        `[B, E]`.
    """
    rows = graph.regular(pheromone).double().cpu().numpy().copy()  # [B, R, K]
    hub = graph.hub(pheromone).double().cpu().numpy().copy()  # [B, N - 1]
    closing = torch.zeros_like(actions[..., :1]) if graph.has_hub else actions[..., :1]
    parts = [closing, actions, closing] if graph.has_hub else [actions, closing]
    _deposit(
        graph.targets.cpu().numpy(), rows, hub, torch.cat(parts, -1).cpu().numpy(),
        amount.double().cpu().numpy(), graph.has_hub, symmetric,
    )  # fmt: skip
    flat = np.concatenate([rows.reshape(len(rows), -1), hub], 1)
    return torch.from_numpy(flat).to(pheromone)


@compiled
def _deposit(
    targets: Any,
    rows: Any,
    hub: Any,
    paths: Any,
    amount: Any,
    has_hub: bool,
    symmetric: bool,
) -> None:
    for b in range(paths.shape[0]):
        for a in range(paths.shape[1]):
            for t in range(paths.shape[2] - 1):
                here, there = paths[b, a, t], paths[b, a, t + 1]
                if here != there:
                    _add(targets[b], rows[b], hub[b], here, there, amount[b, a], has_hub)
                    if symmetric:
                        _add(targets[b], rows[b], hub[b], there, here, amount[b, a], has_hub)


@compiled
def _add(
    targets: Any, rows: Any, hub: Any, here: int, there: int, amount: float, has_hub: bool
) -> None:
    """Adds to one edge, if it is a candidate."""
    if has_hub and here == 0:
        hub[there - 1] += amount
        return
    row = here - 1 if has_hub else here
    for k in range(targets.shape[1]):
        if targets[row, k] == there:
            rows[row, k] += amount
            return
