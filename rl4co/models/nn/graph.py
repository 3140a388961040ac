"""Networks on graphs: nodes with neighbours, or two kinds of nodes joined by edges.

| name | graph | layer |
|---|---|---|
| mlp | none: each node by itself | two linear layers |
| gcn | nodes and their neighbours | graph convolution (Kipf and Welling, 2017), as dense products |
| gat | nodes and their neighbours | GATv2 (Brody et al., 2022) |
| sage | two kinds of nodes | GraphSAGE with means (Hamilton et al., 2017) |
| gen | two kinds of nodes | GENeralized graph convolution (Li et al., 2020) |

The last three are layers of PyTorch Geometric, which works on lists of edges; all graphs of a batch
are one large graph there. It is imported when such a network is built.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch

from torch import Tensor, nn

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError, MissingDependencyError, UnknownNameError
from rl4co.models.nn.norm import make_normalization


class Neighbors(NamedTuple):
    """A batch of graphs, as the neighbours of each node.

    Attributes:
        nodes: Neighbours of each node `[B, N, K]`: nodes of the same graph, or of the other kind;
            -1 where there are fewer.
        features: Features of the edges `[B, N, K, F]`, if they have any.
        others: Features of the nodes of the other kind `[B, M, F]`; None: there is one kind.
    """

    nodes: Tensor
    features: Tensor | None = None
    others: Tensor | None = None

    def edges(self) -> tuple[Tensor, Tensor | None]:
        """Edges from neighbours to nodes `[2, E]`, numbered through the batch, and features."""
        size = self.nodes.shape[1]
        row, node, place = (self.nodes >= 0).nonzero(as_tuple=True)
        num_others = size if self.others is None else self.others.shape[1]
        source = row * num_others + self.nodes[row, node, place]
        edges = torch.stack([source, row * size + node])  # [2, E]
        return edges, None if self.features is None else self.features[row, node, place]


class GraphNetwork(nn.Module):
    """Base: layers with residual connections and normalisation.

    $$h' = \\mathrm{Norm}(h + \\mathrm{ReLU}(\\mathrm{Layer}(h, G)))$$

    Args:
        embed_dim: Embedding size D.
        num_layers: Layers.
        normalization: "batch", "instance", "layer" or None.
        hidden_dim: Width of the hidden layer, for networks that have one.
        num_heads: Attention heads, for networks that have some.

    Shapes:
        `h [B, N, D]`, graphs of as many nodes → `[B, N, D]`
    """

    #: Whether graphs have two kinds of nodes; None: the network needs no graph.
    is_bipartite: ClassVar[bool | None] = False

    def __init__(
        self,
        embed_dim: int,
        num_layers: int = 3,
        normalization: str | None = "batch",
        hidden_dim: int = 512,
        num_heads: int = 8,
    ) -> None:
        super().__init__()
        check_at_least(1, num_layers=num_layers)
        if embed_dim % num_heads:
            raise ConfigError(f"expected embed_dim divisible by {num_heads} heads, got {embed_dim}")
        self.embed_dim, self.hidden_dim, self.num_heads = embed_dim, hidden_dim, num_heads
        self.layers = nn.ModuleList(self.make_layer() for _ in range(num_layers))
        self.norms = nn.ModuleList(
            make_normalization(normalization, embed_dim) for _ in range(num_layers)
        )

    def make_layer(self) -> nn.Module:
        """One layer."""
        raise NotImplementedError

    def forward(self, h: Tensor, graph: Neighbors | None) -> Tensor:
        """Node embeddings after all layers."""
        prepared = None if graph is None else self.prepare(h, graph)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            h = norm(h + self.apply_layer(layer, h, prepared).relu())
        return h

    def prepare(self, h: Tensor, graph: Neighbors) -> Any:
        """The graph as the layers want it."""
        return graph.edges()

    def apply_layer(self, layer: nn.Module, h: Tensor, prepared: Any) -> Tensor:
        """Output of a layer: `[B, N, D]` → `[B, N, D]`."""
        raise NotImplementedError


class NodeMLP(GraphNetwork):
    """Each node by itself: two linear layers with a ReLU in between."""

    is_bipartite = None

    def make_layer(self) -> nn.Module:
        """Expands and contracts."""
        return nn.Sequential(
            nn.Linear(self.embed_dim, self.hidden_dim),
            nn.ReLU(),
            nn.Linear(self.hidden_dim, self.embed_dim),
        )

    def apply_layer(self, layer: nn.Module, h: Tensor, prepared: Any) -> Tensor:
        """Position-wise."""
        out: Tensor = layer(h)
        return out


class GCN(GraphNetwork):
    """Graph convolutions, $\\tilde D^{-1/2} \\tilde A \\tilde D^{-1/2} h W + b$.

    $\\tilde A$ has a one for each pair of which one is a neighbour of the other, and self-loops.
    Graphs of a few hundred nodes are dense products of all graphs at once.
    """

    def make_layer(self) -> nn.Module:
        """The weights W and b."""
        return nn.Linear(self.embed_dim, self.embed_dim)

    def prepare(self, h: Tensor, graph: Neighbors) -> Tensor:
        """The normalised adjacency `[B, N, N]`."""
        size = h.shape[1]
        near = h.new_zeros(*h.shape[:2], size + 1)  # the last column takes those that are none
        near = near.scatter(-1, graph.nodes % (size + 1), 1.0)[..., :size]
        adjacency = torch.maximum(near, near.mT) + torch.eye(size, device=h.device, dtype=h.dtype)
        factor = adjacency.sum(-1).rsqrt()  # [B, N]
        return factor.unsqueeze(-1) * adjacency * factor.unsqueeze(-2)

    def apply_layer(self, layer: nn.Module, h: Tensor, prepared: Tensor) -> Tensor:
        """Means over neighbours, then the weights."""
        out: Tensor = layer(torch.bmm(prepared, h))
        return out


class GAT(GraphNetwork):
    """Attention over the neighbours of each node (GATv2), with their distances."""

    def make_layer(self) -> nn.Module:
        """PyTorch Geometric's layer."""
        size = self.embed_dim // self.num_heads
        return _layers().GATv2Conv(self.embed_dim, size, heads=self.num_heads, edge_dim=1)

    def apply_layer(self, layer: nn.Module, h: Tensor, prepared: Any) -> Tensor:
        """On the edges of all graphs."""
        edges, features = prepared
        return layer(h.flatten(0, 1), edges, edge_attr=features).view_as(h)


class BipartiteNetwork(GraphNetwork):
    """Base of networks on two kinds of nodes: messages go to the others and come back.

    $$o' = \\mathrm{Norm}(o + \\mathrm{ReLU}(\\mathrm{Layer}(h \\to o))), \\qquad
      h' = \\mathrm{Norm}(h + \\mathrm{ReLU}(\\mathrm{Layer}(o' \\to h)))$$
    """

    is_bipartite = True

    def __init__(self, embed_dim: int, num_layers: int = 3, normalization: str | None = "batch",
                 hidden_dim: int = 512, num_heads: int = 8) -> None:  # fmt: skip
        super().__init__(embed_dim, num_layers, normalization, hidden_dim, num_heads)
        self.embed_others = nn.Linear(1, embed_dim)
        self.layers_there = nn.ModuleList(self.make_layer() for _ in range(num_layers))
        self.norms_there = nn.ModuleList(
            make_normalization(normalization, embed_dim) for _ in range(num_layers)
        )

    def forward(self, h: Tensor, graph: Neighbors | None) -> Tensor:
        """Embeddings of the first kind of nodes."""
        assert graph is not None and graph.others is not None
        edges, _ = graph.edges()
        others = self.embed_others(graph.others)  # [B, M, D]
        there, back = edges.flip(0), edges
        for layer, norm, layer_there, norm_there in zip(
            self.layers, self.norms, self.layers_there, self.norms_there, strict=True
        ):
            others = norm_there(others + _send(layer_there, h, others, there).relu())
            h = norm(h + _send(layer, others, h, back).relu())
        return h


class SAGE(BipartiteNetwork):
    """GraphSAGE: $W_1 \\, \\mathrm{mean}_{j \\in N(i)} h_j + W_2 h_i$."""

    def make_layer(self) -> nn.Module:
        """PyTorch Geometric's layer."""
        return _layers().SAGEConv((self.embed_dim, self.embed_dim), self.embed_dim)


class GEN(BipartiteNetwork):
    """Generalised graph convolution: a softmax over neighbours for each channel, then an MLP."""

    def make_layer(self) -> nn.Module:
        """PyTorch Geometric's layer."""
        sizes = (self.embed_dim, self.embed_dim)
        return _layers().GENConv(sizes, self.embed_dim, learn_t=True, norm="layer")


NETWORKS: dict[str, type[GraphNetwork]] = {
    "mlp": NodeMLP,
    "gcn": GCN,
    "gat": GAT,
    "sage": SAGE,
    "gen": GEN,
}


def get_graph_network(name: str) -> type[GraphNetwork]:
    """The network called `name`."""
    if name not in NETWORKS:
        raise UnknownNameError("graph network", name, NETWORKS)
    return NETWORKS[name]


def _send(layer: nn.Module, source: Tensor, target: Tensor, edges: Tensor) -> Tensor:
    """Messages from nodes of one kind to those of the other: `[B, M, D], [B, N, D]` → `[B, N, D]`.

    Args:
        layer: Layer of PyTorch Geometric for two kinds of nodes.
        source: Nodes that send.
        target: Nodes that receive.
        edges: From source to target `[2, E]`, numbered through the batch.
    """
    return layer((source.flatten(0, 1), target.flatten(0, 1)), edges).view_as(target)


def _layers() -> Any:
    """The layers of PyTorch Geometric."""
    try:
        import torch_geometric.nn as layers
    except ImportError as error:
        raise MissingDependencyError("torch_geometric", "graph") from error
    return layers
