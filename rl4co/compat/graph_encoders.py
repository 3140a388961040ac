"""Graph encoders of the published package, without PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.compat.networks import MLP
from rl4co.compat.tensors import get_full_graph_edge_index
from rl4co.core.errors import UnknownNameError
from rl4co.models.embeddings import EmbeddingConfig, make_embeddings
from rl4co.models.policies.autoregressive import AutoregressiveEncoder

if TYPE_CHECKING:
    from tensordict import TensorDictBase

#: State, number of nodes → edges `[2, E]`.
EdgeIndexFnSignature: TypeAlias = "Callable[[TensorDictBase, int], Tensor]"

#: How messages are aggregated.
_AGGREGATIONS = {"add": "sum", "sum": "sum", "mean": "mean", "max": "amax"}


def edge_idx_fn_wrapper(td: TensorDictBase, num_nodes: int) -> Tensor:
    """Edges of the complete graph without loops, which the layers add themselves."""
    return get_full_graph_edge_index(num_nodes).to(td.device)


class GCNEncoder(AutoregressiveEncoder):
    """Graph convolutions over edges that all instances share.

    $$h' = \\mathrm{Dropout}(\\mathrm{ReLU}(\\tilde D^{-1/2} \\tilde A \\tilde D^{-1/2} h W + b))$$

    with self-loops in $\\tilde A$; the last layer has neither activation nor dropout.

    Args:
        env_name: Environment whose init embedding to use.
        embed_dim: Embedding size D.
        num_layers: Layers.
        init_embedding: Replaces the init embedding.
        residual: Whether the input is added to the output.
        edge_idx_fn: State, number of nodes → edges `[2, E]`; None: the complete graph.
        dropout: Probability of dropout.
        bias: Whether the layers have biases.
        num_nodes: Ignored: the graph has the nodes of the instance.

    Shapes:
        state `[B]` → `[B, N, D]`, init embeddings `[B, N, D]`
    """

    def __init__(
        self,
        env_name: str,
        embed_dim: int,
        num_layers: int,
        init_embedding: nn.Module | None = None,
        residual: bool = True,
        edge_idx_fn: EdgeIndexFnSignature | None = None,
        dropout: float = 0.5,
        bias: bool = True,
        num_nodes: int | None = None,
    ) -> None:
        super().__init__()
        self.init_embedding = init_embedding or _init_embedding(env_name, embed_dim)
        self.edge_idx_fn = edge_idx_fn or edge_idx_fn_wrapper
        self.residual, self.dropout = residual, dropout
        self.gcn_layers = nn.ModuleList(
            nn.Linear(embed_dim, embed_dim, bias) for _ in range(num_layers)
        )

    def forward(self, td: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Node embeddings after and before the layers."""
        init_h = h = self.init_embedding(td)
        num_nodes = h.shape[1]
        origin, target = self.edge_idx_fn(td, num_nodes)
        adjacency = torch.eye(num_nodes, dtype=h.dtype, device=h.device)
        adjacency[target, origin] = 1.0  # messages go from origins to targets
        factor = adjacency.sum(-1).rsqrt()
        weights = factor.unsqueeze(-1) * adjacency * factor  # [N, N]
        for depth, layer in enumerate(self.gcn_layers, start=1):
            h = layer(weights @ h)
            if depth < len(self.gcn_layers):
                h = F.dropout(h.relu(), self.dropout, self.training)
        return (h + init_h if self.residual else h), init_h


class MessagePassingLayer(nn.Module):
    """One round of messages: edges read their two nodes, nodes the aggregate of their edges.

    Args:
        node_indim: Size of nodes before.
        node_outdim: Size of nodes after.
        edge_indim: Size of edges before.
        edge_outdim: Size of edges after.
        aggregation: "add", "mean" or "max".
        residual: Whether the input of a node is added to its output.

    Shapes:
        `nodes [B, N, D]`, `edges [B, E, F]`, `edge_index [2, E]` → nodes, edges
    """

    def __init__(
        self,
        node_indim: int,
        node_outdim: int,
        edge_indim: int,
        edge_outdim: int,
        aggregation: str = "add",
        residual: bool = False,
    ) -> None:
        super().__init__()
        if aggregation not in _AGGREGATIONS:
            raise UnknownNameError("aggregation", aggregation, _AGGREGATIONS)
        self.aggregation, self.residual = _AGGREGATIONS[aggregation], residual
        self.edge_model = MLP(edge_indim + 2 * node_indim, edge_outdim)
        self.node_model = MLP(edge_outdim + node_indim, node_outdim)

    def forward(self, nodes: Tensor, edges: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes and edges after the round."""
        origin, target = edge_index
        ends = torch.cat([nodes[:, origin], nodes[:, target], edges], -1)
        messages = self.edge_model(ends)  # [B, E, F']
        index = target.view(1, -1, 1).expand_as(messages)
        received = messages.new_zeros(*nodes.shape[:2], messages.shape[-1])
        if self.aggregation == "sum":
            received = received.scatter_add(1, index, messages)
        else:
            received = received.scatter_reduce(
                1, index, messages, self.aggregation, include_self=False
            )
        update = self.node_model(torch.cat([nodes, received], -1))
        return (update + nodes if self.residual else update), messages


class MessagePassingEncoder(AutoregressiveEncoder):
    """Message passing over the complete graph; edges begin as distances of embeddings.

    Args:
        env_name: Environment whose init embedding to use.
        embed_dim: Embedding size D.
        num_nodes: Ignored: the graph has the nodes of the instance.
        num_layers: Layers.
        init_embedding: Replaces the init embedding.
        aggregation: "add", "mean" or "max".
        self_loop: Whether nodes send messages to themselves.
        residual: Whether the input of a node is added to its output.

    Shapes:
        state `[B]` → `[B, N, D]`, init embeddings `[B, N, D]`
    """

    def __init__(
        self,
        env_name: str,
        embed_dim: int,
        num_nodes: int | None = None,
        num_layers: int = 3,
        init_embedding: nn.Module | None = None,
        aggregation: str = "add",
        self_loop: bool = False,
        residual: bool = True,
    ) -> None:
        super().__init__()
        self.init_embedding = init_embedding or _init_embedding(env_name, embed_dim)
        self.self_loop = self_loop
        self.mpnn_layers = nn.ModuleList(
            MessagePassingLayer(embed_dim, embed_dim, 1, 1, aggregation, residual)
            for _ in range(num_layers)
        )

    def forward(self, td: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Node embeddings after and before the layers."""
        init_h = nodes = self.init_embedding(td)
        index = get_full_graph_edge_index(nodes.shape[1], self.self_loop).to(nodes.device)
        edges = (nodes[:, index[0]] - nodes[:, index[1]]).norm(dim=-1, keepdim=True)  # [B, E, 1]
        for layer in self.mpnn_layers:
            nodes, edges = layer(nodes, edges, index)
        return nodes, init_h


def _init_embedding(env_name: str, embed_dim: int) -> nn.Module:
    return make_embeddings(env_name, EmbeddingConfig(embed_dim)).init
