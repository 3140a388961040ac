"""Edge embeddings: the sparse graph of an instance, with features of its nodes and edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.graphs import CandidateGraph, nearest_graph
from rl4co.models.embeddings._base import EmbeddingConfig, coordinates

#: Fewest candidate edges per node, unless the instance is smaller or `k_sparse` is set.
MIN_DEGREE = 10
#: Most candidate edges per node, unless `k_sparse` is set: memory then grows with the
#: number of nodes, not with its square.
MAX_DEGREE = 200


class EmbeddedGraph(NamedTuple):
    """A sparse graph with embedded nodes and edges.

    Attributes:
        graph: Candidate edges.
        nodes: `[B, N, D]`.
        edges: `[B, E, D]`.
        lengths: Lengths of the edges, `[B, E]`.
    """

    graph: CandidateGraph
    nodes: Tensor
    edges: Tensor
    lengths: Tensor


class EdgeEmbedding(nn.Module):
    """Nearest neighbours of each node, and linear maps of the features of nodes and edges.

    The depot of a problem that has one keeps its edges to and from all customers.

    Args:
        config: `embed_dim`, `k_sparse` (nearest neighbours per node; default: a share of their
            number, from 10 to 200) and `edge_options`.

    Shapes:
        state → nodes `[B, N, D]`, edges `[B, E, D]`
    """

    #: Features of a node and of an edge.
    num_node_features: ClassVar[int] = 2
    num_edge_features: ClassVar[int] = 1
    #: Whether node 0 is a depot.
    has_hub: ClassVar[bool] = False
    #: By default, a node has edges to one out of this many others.
    share: ClassVar[int] = 5
    #: Settings of this problem in `edge_options`, with their defaults.
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, config: EmbeddingConfig) -> None:
        super().__init__()
        for name in config.edge_options:
            if name not in self.defaults:
                raise UnknownNameError("option of the edge embedding", name, self.defaults)
        k_sparse = config.k_sparse
        if k_sparse is not None and (type(k_sparse) is not int or k_sparse < 1):
            raise ConfigError(
                f"expected k_sparse to be an integer of at least 1, or None, got {k_sparse!r}"
            )
        self.options = {**self.defaults, **config.edge_options}
        self.k_sparse = k_sparse
        self.node_embed = nn.Linear(self.count_node_features(), config.embed_dim)
        self.edge_embed = nn.Linear(self.num_edge_features, config.embed_dim)

    def count_node_features(self) -> int:
        """Features of a node, with the options in use."""
        return self.num_node_features

    def node_features(self, state: Mapping[str, Tensor]) -> Tensor:
        """`[B, N, F]`."""
        raise NotImplementedError

    def degree(self, num_nodes: int) -> int:
        """Nearest neighbours per node, the depot not counted."""
        if self.k_sparse is not None:
            return self.k_sparse
        others = num_nodes - 1 - self.has_hub
        wanted = min(max(num_nodes // self.share, MIN_DEGREE), MAX_DEGREE)
        return max(min(wanted, others), 0)

    def build_graph(self, state: Mapping[str, Tensor]) -> tuple[CandidateGraph, Tensor, Tensor]:
        """The graph, features of its edges `[B, E, F]`, and their lengths `[B, E]`."""
        locs = coordinates(state, "sparse")
        graph, lengths = nearest_graph(
            locs, self.degree(locs.shape[1]), self.has_hub, self.options.get("self_loops", False)
        )
        return graph, lengths.unsqueeze(-1), lengths

    def forward(self, state: Mapping[str, Tensor]) -> EmbeddedGraph:
        """The embedded graph."""
        graph, features, lengths = self.build_graph(state)
        nodes = self.node_embed(self.node_features(state))
        return EmbeddedGraph(graph, nodes, self.edge_embed(features), lengths)
