"""Non-autoregressive policies: encode once to weights of edges, then decode without the network.

The encoder assigns a weight to every candidate edge of an instance. Solutions follow from these:
by any strategy of the decode loop (greedy, sampling, multi-start, beam search), by ants
(:mod:`rl4co.decoding.ant_colony`), or by a partition of the instance. Likelihoods of given
solutions are computed for all steps at once (:mod:`rl4co.decoding.edges`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError, NotFiniteError, UnsupportedError
from rl4co.core.graphs import CandidateGraph
from rl4co.core.registry import EMBEDDINGS
from rl4co.decoding.edges import (
    EdgeLogits,
    Rule,
    check_rule,
    edge_log_likelihood,
    sample_by_edges,
)
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.embeddings import EmbeddedGraph, EmbeddingConfig
from rl4co.models.nn.edge_gnn import EdgeGNN, EdgeHead
from rl4co.models.policies.autoregressive import AutoregressiveEncoder
from rl4co.models.policies.constructive import ConstructivePolicy, Encoding, Plan
from rl4co.models.policies.modules import ConstructiveDecoder, ConstructiveEncoder
from rl4co.models.policies.precision import match_precision

#: Weights of edges `[B, E]` or of all pairs of nodes `[B, N, N]`, or a function of the state after
#: reset that returns them.
Heuristic = Tensor | Callable[[TensorDictBase], Tensor]


class EdgeWeights(NamedTuple):
    """Weighted candidate edges of a batch of instances.

    Attributes:
        graph: Candidate edges.
        weights: Their weights, `[B, E]`, positive.
        edges: Embeddings of the edges, `[B, E, D]`.
        lengths: Lengths of the edges, `[B, E]`.
    """

    graph: CandidateGraph
    weights: Tensor
    edges: Tensor
    lengths: Tensor


class NonAutoregressiveEncoder(ConstructiveEncoder):
    """Instance → weights of candidate edges."""

    def forward(self, td: Mapping[str, Tensor]) -> tuple[EdgeWeights, Tensor]:
        """Weights of edges, and embeddings of nodes `[B, N, D]` before the network."""
        raise NotImplementedError


class NonAutoregressiveDecoder(ConstructiveDecoder):
    """Logits from the weights of the edges at the current node; has no parameters.

    Args:
        rule: What to do where no candidate edge is allowed: "nearest" node, or any node with equal
            probability ("uniform", as in the original codes).
    """

    def __init__(self, rule: Rule = "nearest") -> None:
        super().__init__()
        self.rule: Rule = check_rule(rule)

    @property
    def replay_keys(self) -> tuple[str, ...]:
        """All that a step looks at."""
        return ("current_node", "i")

    def prepare(self, hidden: EdgeWeights, state: Mapping[str, Tensor]) -> EdgeLogits:
        """Logits of all pairs of nodes."""
        return EdgeLogits.of(hidden.graph, hidden.weights, state["locs"], self.rule)

    def forward(self, state: Mapping[str, Tensor], cache: EdgeLogits) -> Tensor:
        """Logits `[B, Q, N]`."""
        return cache(dict(state))


class NonAutoregressivePolicy(ConstructivePolicy):
    """A policy $\\pi(a | x) = \\prod_t p(a_t | a_{t-1}, w(x))$ with weights $w$ of edges.

    The weights come from the encoder, from `heuristic`, or from a subclass that overrides
    :meth:`heatmap`; they are the ones used in training, decoding and ant colonies alike.

    Args:
        encoder: Instance → weights of edges.
        decoder: Weights and state → logits (default: :class:`NonAutoregressiveDecoder`).
        env_name: Environment used when none is passed.
        heuristic: Replaces the weights of the encoder, whose candidate edges stay.
        kwargs: See :class:`ConstructivePolicy`.
    """

    decoder: NonAutoregressiveDecoder

    def __init__(
        self,
        encoder: nn.Module,
        decoder: NonAutoregressiveDecoder | None = None,
        env_name: str = "tsp",
        heuristic: Heuristic | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(encoder, decoder or NonAutoregressiveDecoder(), env_name, **kwargs)
        self.heuristic = heuristic

    def encode(self, plan: Plan, hidden: EdgeWeights | None = None) -> Encoding:
        """Step 2, see :meth:`ConstructivePolicy.encode`; with replaced weights if there are any."""
        if hidden is None and (self.heuristic is not None or self._overrides_heatmap):
            hidden = self.edge_weights(plan.td)
        return super().encode(plan, hidden)

    def edge_weights(self, td: TensorDictBase, heuristic: Heuristic | None = None) -> EdgeWeights:
        """Weights of the candidate edges, in the precision of the network; differentiable.

        Args:
            td: State after reset, batch `[B]`.
            heuristic: Replaces the policy's weights.
        """
        if heuristic is None and self._overrides_heatmap:
            hidden = self._encode_edges(td)
            return replace_weights(hidden, self.heatmap(td), td)
        return self._weighted_edges(td, heuristic)

    def heatmap(self, td: TensorDictBase) -> Tensor:
        """Weights of all pairs of nodes, zero where pruned: `[B, N, N]`, up to 5,000 nodes.

        Override or patch it to change the policy's weights: solutions are drawn, improved and
        scored by what it returns for the candidate edges.
        """
        hidden = self._weighted_edges(td)
        return hidden.graph.dense(hidden.weights)

    @property
    def _overrides_heatmap(self) -> bool:
        """Whether a subclass or an assignment replaces :meth:`heatmap`."""
        return getattr(self.heatmap, "__func__", None) is not _HEATMAP

    def _weighted_edges(
        self, td: TensorDictBase, heuristic: Heuristic | None = None
    ) -> EdgeWeights:
        """Edges with the weights of a heuristic, the policy's own one or the encoder."""
        hidden = self._encode_edges(td)
        heuristic = self.heuristic if heuristic is None else heuristic
        return hidden if heuristic is None else replace_weights(hidden, heuristic, td)

    def _encode_edges(self, td: TensorDictBase) -> EdgeWeights:
        """Edges with the weights of the encoder."""
        hidden, _ = self.encoder(match_precision(td, self))
        assert isinstance(hidden, EdgeWeights)
        if self.check_nan and bool(hidden.weights.isnan().any()):
            raise NotFiniteError(
                f"expected weights of edges from {type(self).__name__}, got NaN; lower the "
                "learning rate, clip gradients or use a higher precision"
            )
        return hidden

    @torch.no_grad()
    def sample(
        self,
        td: TensorDictBase,
        env: RL4COEnvBase,
        num_samples: int,
        hidden: EdgeWeights,
        rng: torch.Generator | None = None,
        temperature: float = 1.0,
    ) -> Tensor:
        """Solutions `[B, A, T]` drawn by the weights, by the fastest way that the problem has.

        Args:
            td: State after reset, batch `[B]`.
            env: Environment.
            num_samples: Solutions A per instance.
            hidden: From :meth:`edge_weights`.
            rng: Random stream.
            temperature: Weights are raised to the power of one over it.
        """
        if not temperature > 0.0:
            raise ConfigError(f"expected a positive temperature, got {temperature}")
        weights = hidden.weights if temperature == 1.0 else hidden.weights ** (1.0 / temperature)
        state, rule = dict(td.items()), self.decoder.rule
        return sample_by_edges(env, state, hidden.graph, weights, num_samples, rng, rule)

    def log_likelihood(
        self, td: TensorDictBase, env: RL4COEnvBase, actions: Tensor, hidden: EdgeWeights
    ) -> Tensor:
        """Log-likelihoods `[B, A]` of solutions `[B, A, T]`, all steps at once, differentiable.

        Args:
            td: State after reset, batch `[B]`.
            env: Environment.
            actions: Solutions, the policy's own or others.
            hidden: From :meth:`edge_weights`.
        """
        state, graph, weights = dict(td.items()), hidden.graph, hidden.weights
        return edge_log_likelihood(env, state, graph, weights, actions, self.decoder.rule)


#: The heatmap that is not overridden.
_HEATMAP = NonAutoregressivePolicy.heatmap


def replace_weights(hidden: EdgeWeights, heuristic: Heuristic, td: TensorDictBase) -> EdgeWeights:
    """The same edges with the weights of a heuristic.

    Args:
        hidden: Candidate edges.
        heuristic: Their weights, or those of all pairs of nodes, or a function of `td`.
        td: State after reset, batch `[B]`.
    """
    weights = heuristic if isinstance(heuristic, Tensor) else heuristic(td)
    size, edges = hidden.graph.num_nodes, hidden.graph.num_edges
    shapes = [(len(hidden.weights), edges), (len(hidden.weights), size, size)]
    if not isinstance(weights, Tensor) or tuple(weights.shape) not in shapes:
        raise ConfigError(
            f"expected weights of shape [B, E] = {list(shapes[0])} or [B, N, N] = "
            f"{list(shapes[1])} as heuristic, got {list(getattr(weights, 'shape', [])) or weights}"
        )
    if not bool(((weights >= 0) & weights.isfinite()).all()):
        raise ConfigError("expected finite weights of at least 0 as heuristic, got others")
    weights = weights if weights.dim() == 2 else hidden.graph.gather(weights)
    return hidden._replace(weights=weights.to(hidden.weights))


class NARGNNEncoder(NonAutoregressiveEncoder):
    """Graph network over candidate edges (:class:`~rl4co.models.nn.edge_gnn.EdgeGNN`).

    Args:
        embed_dim: Embedding size D.
        num_layers_graph_encoder: Layers of the network.
        num_layers_heatmap_generator: Linear layers of the head.
        env_name: Environment whose edge embedding to use.
        edge_embedding: Replaces the edge embedding.
        k_sparse: Nearest neighbours that each node has edges to (default: a share of all nodes).
        edge_options: Settings of the problem's edge embedding.
        by_node: Whether the weights of a node's edges add up to one.
    """

    def __init__(
        self,
        embed_dim: int = 32,
        num_layers_graph_encoder: int = 12,
        num_layers_heatmap_generator: int = 3,
        env_name: str = "tsp",
        edge_embedding: nn.Module | None = None,
        k_sparse: int | None = None,
        edge_options: Mapping[str, Any] | None = None,
        by_node: bool = False,
    ) -> None:
        super().__init__()
        self.edge_embedding = edge_embedding or make_edge_embedding(
            env_name,
            EmbeddingConfig(embed_dim, k_sparse=k_sparse, edge_options=dict(edge_options or {})),
        )
        self.net = EdgeGNN(embed_dim, num_layers_graph_encoder)
        self.head = EdgeHead(embed_dim, num_layers_heatmap_generator, by_node)

    def forward(self, td: Mapping[str, Tensor]) -> tuple[EdgeWeights, Tensor]:
        """Weights of edges, and embedded nodes `[B, N, D]`."""
        embedded: EmbeddedGraph = self.edge_embedding(dict(td.items()))
        _, edges = self.net(embedded.nodes, embedded.edges, embedded.graph)
        weights = self.head(edges, embedded.graph)  # [B, E]
        return EdgeWeights(embedded.graph, weights, edges, embedded.lengths), embedded.nodes


class NARGNNNodeEncoder(AutoregressiveEncoder):
    """Nodes of the same graph network, for decoders that point at nodes.

    Args:
        embed_dim: Embedding size D.
        num_layers_graph_encoder: Layers of the network.
        env_name: Environment whose edge embedding to use.
        k_sparse: See :class:`NARGNNEncoder`.

    Shapes:
        state `[B]` → `[B, N, D]`, embedded nodes `[B, N, D]`
    """

    def __init__(
        self,
        embed_dim: int = 32,
        num_layers_graph_encoder: int = 12,
        env_name: str = "tsp",
        k_sparse: int | None = None,
    ) -> None:
        super().__init__()
        config = EmbeddingConfig(embed_dim, k_sparse=k_sparse)
        self.edge_embedding = make_edge_embedding(env_name, config)
        self.net = EdgeGNN(embed_dim, num_layers_graph_encoder)

    def forward(self, td: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Node embeddings after and before the layers."""
        embedded: EmbeddedGraph = self.edge_embedding(dict(td.items()))
        nodes, _ = self.net(embedded.nodes, embedded.edges, embedded.graph)
        return nodes, embedded.nodes


class NARGNNPolicy(NonAutoregressivePolicy):
    """Policy with a graph network as encoder.

    Args:
        encoder: Replaces the encoder; the arguments of the encoder below are not used then.
        decoder: Replaces the decoder.
        embed_dim: Embedding size D.
        num_layers_graph_encoder: Layers of the network.
        num_layers_heatmap_generator: Linear layers of the head.
        env_name: Environment.
        edge_embedding: Replaces the edge embedding.
        k_sparse: Nearest neighbours that each node has edges to (default: a share of all nodes).
        edge_options: Settings of the problem's edge embedding.
        by_node: Whether the weights of a node's edges add up to one.
        rule: What to do where no candidate edge is allowed, "nearest" or "uniform".
        kwargs: See :class:`NonAutoregressivePolicy`.
    """

    def __init__(
        self,
        encoder: nn.Module | None = None,
        decoder: NonAutoregressiveDecoder | None = None,
        embed_dim: int = 32,
        num_layers_graph_encoder: int = 12,
        num_layers_heatmap_generator: int = 3,
        env_name: str = "tsp",
        edge_embedding: nn.Module | None = None,
        k_sparse: int | None = None,
        edge_options: Mapping[str, Any] | None = None,
        by_node: bool = False,
        rule: Rule = "nearest",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            encoder
            or NARGNNEncoder(
                embed_dim,
                num_layers_graph_encoder,
                num_layers_heatmap_generator,
                env_name,
                edge_embedding,
                k_sparse,
                edge_options,
                by_node,
            ),
            decoder or NonAutoregressiveDecoder(rule),
            env_name,
            **kwargs,
        )


def make_edge_embedding(env_name: str, config: EmbeddingConfig) -> nn.Module:
    """The edge embedding of the environment called `env_name`."""
    make = EMBEDDINGS[env_name](config).edge
    if make is None:
        raise UnsupportedError(
            f"expected an environment with an edge embedding, got {env_name!r}, which has none; "
            "set `edge` in its EnvEmbeddings record, or pass edge_embedding"
        )
    return make(config)
