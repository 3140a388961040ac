"""Encoder that is a network on the graph of the instance."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from rl4co.core.errors import UnsupportedError
from rl4co.models.embeddings import EmbeddingConfig, make_embeddings
from rl4co.models.nn.graph import NETWORKS, get_graph_network
from rl4co.models.policies.autoregressive import AutoregressiveEncoder


class GNNEncoder(AutoregressiveEncoder):
    """Node embeddings $h = \\mathrm{Network}(\\mathrm{InitEmbedding}(x), G(x))$.

    Every graph of a batch gets its messages. Of problems on bipartite graphs (sets and items) the
    nodes that can be chosen are embedded.

    Args:
        env_name: Environment whose embeddings and graph to use.
        network: "mlp", "gcn" or "gat"; for bipartite graphs "mlp", "sage" or "gen".
        embed_dim: Embedding size D.
        num_layers: Layers.
        normalization: "batch", "instance", "layer" or None.
        feedforward_hidden: Width of the hidden layers of "mlp".
        num_heads: Heads of "gat".
        init_embedding: Instance → `[B, N, D]` (default: that of `env_name`).

    Shapes:
        state with batch `[B]` → `[B, N, D]`, `[B, N, D]`
    """

    def __init__(
        self,
        env_name: str = "flp",
        network: str = "mlp",
        embed_dim: int = 128,
        num_layers: int = 3,
        normalization: str | None = "batch",
        feedforward_hidden: int = 512,
        num_heads: int = 8,
        init_embedding: nn.Module | None = None,
    ) -> None:
        super().__init__()
        config = EmbeddingConfig(embed_dim)
        embeddings = make_embeddings(env_name, config)
        graph = None if embeddings.edge is None else embeddings.edge(config)
        kind = get_graph_network(network)
        bipartite = getattr(graph, "is_bipartite", None)
        if graph is None or bipartite is None:
            raise UnsupportedError(
                f"expected an environment with neighbours in its EnvEmbeddings.edge, got "
                f"{env_name!r}; use AttentionModelPolicy, which needs no graph"
            )
        if kind.is_bipartite not in (None, bipartite):
            fits = [n for n, other in NETWORKS.items() if other.is_bipartite in (None, bipartite)]
            raise UnsupportedError(
                f"expected a network for the graph of {env_name!r} among {', '.join(fits)}, got "
                f"{network!r}"
            )
        self.init_embedding = embeddings.init if init_embedding is None else init_embedding
        self.graph = graph
        self.net = kind(embed_dim, num_layers, normalization, feedforward_hidden, num_heads)

    def forward(self, td: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Final and initial node embeddings."""
        init_embeds = self.init_embedding(td)  # [B, N, D]
        graph = None if self.net.is_bipartite is None else self.graph(td)
        return self.net(init_embeds, graph), init_embeds
