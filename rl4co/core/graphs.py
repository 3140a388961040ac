"""Sparse graphs of candidate edges as plain tensors: every node has the same number of them.

Node 0 may be a *hub* (a depot) with edges to and from all other nodes; those never get lost.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.core.neighbors import MAX_DENSE_NODES

#: Distances computed at the same time in a search for neighbours.
_DISTANCES_AT_ONCE = 1 << 24


class CandidateGraph(NamedTuple):
    """Candidate edges of a batch of instances with N nodes.

    Values of edges are tensors `[B, E, ...]`: the K edges of each regular node in turn, then, with
    a hub, its edges to all other nodes. Regular nodes are all N without a hub, and the N - 1
    other nodes with one; the last target of each of these is the hub.

    Attributes:
        targets: Where the edges of regular nodes lead to, `[B, R, K]`.
        has_hub: Whether node 0 is a hub.
    """

    targets: Tensor
    has_hub: bool

    @property
    def num_nodes(self) -> int:
        """Number N of nodes."""
        return self.targets.shape[1] + self.has_hub

    @property
    def num_edges(self) -> int:
        """Number E of edges."""
        rows, degree = self.targets.shape[1:]
        return rows * degree + (rows if self.has_hub else 0)

    def regular(self, values: Tensor) -> Tensor:
        """Values of the edges of regular nodes: `[B, E, ...]` → `[B, R, K, ...]`."""
        rows, degree = self.targets.shape[1:]
        return values[:, : rows * degree].unflatten(1, (rows, degree))

    def hub(self, values: Tensor) -> Tensor:
        """Values of the edges from the hub: `[B, E, ...]` → `[B, N - 1, ...]` (nothing without)."""
        rows, degree = self.targets.shape[1:]
        return values[:, rows * degree :]

    def destinations(self) -> Tensor:
        """The node that each edge leads to, `[B, E]`."""
        regular = self.targets.flatten(1)
        if not self.has_hub:
            return regular
        customers = torch.arange(1, self.num_nodes, device=regular.device)
        return torch.cat([regular, customers.expand(len(regular), -1)], 1)

    def origins(self) -> Tensor:
        """The node that each edge comes from, `[E]`, the same for all instances."""
        rows, degree = self.targets.shape[1:]
        nodes = torch.arange(rows, device=self.targets.device) + int(self.has_hub)
        regular = nodes.repeat_interleave(degree)
        return torch.cat([regular, regular.new_zeros(rows)]) if self.has_hub else regular

    def dense(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """A matrix of the values of all edges, `fill` elsewhere: `[B, E]` → `[B, N, N]`."""
        size = self.num_nodes
        check_memory(size)
        matrix = values.new_full((len(values), size * size), fill)
        return matrix.scatter(1, self.origins() * size + self.destinations(), values).view(
            -1, size, size
        )

    def gather(self, matrix: Tensor) -> Tensor:
        """Values of the edges in a matrix of all pairs: `[B, N, N]` → `[B, E]`."""
        pairs = self.origins() * self.num_nodes + self.destinations()  # [B, E]
        return matrix.flatten(1).gather(1, pairs)


def check_memory(num_nodes: int) -> None:
    """Raises where a matrix of all pairs of nodes would be too large."""
    if num_nodes > MAX_DENSE_NODES:
        raise UnsupportedError(
            f"expected at most {MAX_DENSE_NODES:,} nodes for a matrix of all pairs, got "
            f"{num_nodes:,}; use the values of candidate edges [B, E] instead"
        )


def check_degree(degree: int, rows: int, has_hub: bool, self_loops: bool = False) -> None:
    """Raises where regular nodes, `rows` in number, cannot have `degree` different neighbours."""
    most = rows if self_loops else rows - 1
    if not 0 <= degree <= most or (degree == 0 and not has_hub and rows > 1):
        kind = "customers" if has_hub else "nodes"
        raise ConfigError(
            f"expected 1 to {most} candidate edges per node for {rows} {kind}, got {degree}; "
            "lower k_sparse, or leave it out"
        )


def nearest_graph(
    locs: Tensor, degree: int, has_hub: bool = False, self_loops: bool = False
) -> tuple[CandidateGraph, Tensor]:
    """Edges to the nearest nodes, and their lengths.

    Args:
        locs: Coordinates; not modified.
        degree: Nearest nodes of each node, its edge to a hub not counted.
        has_hub: Whether node 0 has edges to and from all others.
        self_loops: Whether each node is its own nearest one (as in the original DeepACO for the
            CVRP); such an edge has length 1e-10.

    Shapes:
        locs `[B, N, 2]` → graph, lengths `[B, E]`
    """
    points = locs[:, 1:] if has_hub else locs  # [B, R, 2]
    rows = points.shape[1]
    check_degree(degree, rows, has_hub, self_loops)
    lengths, targets = _nearest(points, degree, self_loops)  # [B, R, K] each
    if not has_hub:
        return CandidateGraph(targets, False), lengths.flatten(1)
    to_hub = (points - locs[:, :1]).norm(dim=-1)  # [B, R]
    targets = (
        torch.cat([targets + 1, torch.zeros_like(targets[..., :1])], -1)
        if degree
        else (torch.zeros(*points.shape[:2], 1, dtype=torch.int64, device=locs.device))
    )
    lengths = torch.cat([lengths, to_hub.unsqueeze(-1)], -1)  # [B, R, K + 1]
    return CandidateGraph(targets, True), torch.cat([lengths.flatten(1), to_hub], 1)


def _nearest(points: Tensor, degree: int, self_loops: bool) -> tuple[Tensor, Tensor]:
    """Lengths and indices `[B, R, K]`, some rows at a time."""
    batch, size = points.shape[:2]
    if degree == 0:
        none = points.new_empty(batch, size, 0)
        return none, torch.empty(batch, size, 0, dtype=torch.int64, device=points.device)
    chunk = max(1, _DISTANCES_AT_ONCE // max(batch * size, 1))
    parts = []
    for first in range(0, size, chunk):
        some = points[:, first : first + chunk]
        apart = torch.cdist(some, points, compute_mode="donot_use_mm_for_euclid_dist")
        itself = torch.arange(first, first + some.shape[1], device=points.device)
        diagonal = 1e-10 if self_loops else torch.inf
        apart.scatter_(2, itself.view(1, -1, 1).expand(batch, -1, 1), diagonal)
        parts.append(apart.topk(degree, dim=-1, largest=False))  # [B, chunk, K]
    return torch.cat([part.values for part in parts], 1), torch.cat(
        [part.indices for part in parts], 1
    )
