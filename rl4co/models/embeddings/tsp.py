"""TSP embeddings: coordinates in, first and last node as context."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor, nn

from rl4co import kernels
from rl4co.core.errors import UnknownNameError
from rl4co.core.layouts import node_index, per_solution
from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import (
    ContextEmbedding,
    ContextTable,
    EdgeEmbedding,
    EmbeddingConfig,
    EnvEmbeddings,
    Kind,
    LinearInitEmbedding,
    coordinates,
)


class TSPInitEmbedding(LinearInitEmbedding):
    """Linear map of the coordinates: state → `[B, N, D]`."""

    def __init__(self, embed_dim: int, linear_bias: bool = True) -> None:
        super().__init__()
        self.init_embed = nn.Linear(2, embed_dim, linear_bias)

    def kinds(self, state: Mapping[str, Tensor]) -> list[Kind]:
        """All nodes are alike."""
        return [(coordinates(state, "tsp"), self.init_embed)]


@kernels.standard
class TSPContext(ContextEmbedding):
    """Query from the first and the last node; a learned placeholder before the first step.

    $$q = W [h_{a_1}, h_{a_{t-1}}], \\qquad q_1 = W v_{\\mathrm{placeholder}}$$
    """

    state_keys = ("first_node", "current_node", "i")

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, num_nodes=2)
        self.W_placeholder = nn.Parameter(torch.empty(2 * embed_dim).uniform_(-1, 1))

    def nodes(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """First and last node."""
        return node_index(state, "first_node"), node_index(state, "current_node")

    def before_first_node(self, state: Mapping[str, Tensor]) -> Tensor:
        """Solutions `[B, Q, 1]` before their first step."""
        return per_solution(state, "i") == 0

    def node_inputs(self, embeddings: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """First and last node, or the placeholder where no node has been visited."""
        return torch.where(
            self.before_first_node(state),
            self.W_placeholder,
            super().node_inputs(embeddings, state),
        )

    def table(self, embeddings: Tensor) -> ContextTable:
        """The table of first and last nodes, with two more rows for the placeholder."""
        table = super().table(embeddings)
        placeholder = self.project_context(self.W_placeholder)  # [D]
        rows = torch.cat([table.rows, torch.stack([placeholder, torch.zeros_like(placeholder)])])
        blank = torch.arange(len(rows) - 2, len(rows), device=rows.device)
        return table._replace(rows=rows, blank=blank)

    def table_rows(self, table: ContextTable, state: Mapping[str, Tensor]) -> Tensor:
        """Rows of first and last node, or the placeholder's where no node has been visited."""
        assert table.blank is not None  # as made above
        begins = self.before_first_node(state)
        return torch.where(begins, table.blank, super().table_rows(table, state))


class TSPEdgeEmbedding(EdgeEmbedding):
    """Nearest neighbours with their distances.

    The option `nodes` selects the features of a node: its "coordinates", or only whether it is the
    first one ("start"), so that the network sees nothing but distances, as in DeepACO.
    """

    share = 10
    defaults = {"nodes": "coordinates"}

    def count_node_features(self) -> int:
        """Two coordinates, or one mark."""
        sizes = {"coordinates": 2, "start": 1}
        if self.options["nodes"] not in sizes:
            raise UnknownNameError("kind of node features", self.options["nodes"], sizes)
        return sizes[self.options["nodes"]]

    def node_features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Coordinates `[B, N, 2]`, or a one at the first node `[B, N, 1]`."""
        locs = coordinates(state, "tsp")
        if self.options["nodes"] == "coordinates":
            return locs
        first = torch.zeros_like(locs[..., :1])
        first[:, 0] = 1.0
        return first


@EMBEDDINGS.register("tsp")
def tsp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the TSP."""
    return EnvEmbeddings(
        init=TSPInitEmbedding(config.embed_dim, config.linear_bias),
        context=TSPContext(config.embed_dim),
        edge=TSPEdgeEmbedding,
    )
