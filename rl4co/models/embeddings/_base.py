"""Base classes of init, context and dynamic embeddings.

A problem's embeddings map its instance and state to what the policy computes with:

* init: instance → node embeddings, once per instance;
* context: state → query, at every step;
* dynamic: state → changes of the cached keys and values, at every step (few problems need it).
"""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping

import torch

from torch import Tensor, nn

from rl4co.core.errors import UnsupportedError
from rl4co.core.ops import lookup_rows


@dataclasses.dataclass(frozen=True)
class EmbeddingConfig:
    """What a problem's embeddings are built from.

    Attributes:
        embed_dim: Embedding size D.
        linear_bias: Whether the init embeddings have a bias.
    """

    embed_dim: int = 128
    linear_bias: bool = True


@dataclasses.dataclass
class EnvEmbeddings:
    """The embeddings of one problem.

    Attributes:
        init: Instance → node embeddings `[B, N, D]`.
        context: State → query `[B, Q, D]`.
        dynamic: State → changes of keys and values, or None if these never change.
        edge: Instance → edge features for sparse graphs, or None.
    """

    init: nn.Module
    context: nn.Module
    dynamic: nn.Module | None = None
    edge: nn.Module | None = None


class ContextEmbedding(nn.Module):
    """Query of a decoding step from a few nodes' embeddings and a few features of the state.

    $$q = W [h_{i_1}, \\dots, h_{i_K}, f_1, \\dots, f_F]$$

    The product with the node embeddings is taken once per instance for all nodes
    (:meth:`prepare`); a step only looks up rows. Subclasses say which nodes and features.

    Args:
        embed_dim: Embedding size D.
        num_nodes: Nodes K whose embeddings enter the query.
        num_features: Features F of the state.
        bias: Whether the projection has a bias.

    Shapes:
        `prepare`: `[B, N, D]` → `[B, N, K, D]`; `forward`: state with axes `[B, Q]` → `[B, Q, D]`
    """

    #: State keys that :meth:`nodes` and :meth:`features` read; recorded for the replay.
    state_keys: tuple[str, ...] = ()

    def __init__(
        self, embed_dim: int, num_nodes: int = 1, num_features: int = 0, bias: bool = False
    ) -> None:
        super().__init__()
        self.embed_dim, self.num_nodes, self.num_features = embed_dim, num_nodes, num_features
        width = num_nodes * embed_dim + num_features
        self.project_context = nn.Linear(width, embed_dim, bias=bias)

    def nodes(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Indices `[B, Q]` of the K nodes."""
        return (state["current_node"],)

    def features(self, state: Mapping[str, Tensor]) -> Tensor | None:
        """Features `[B, Q, F]`, or None if there are none."""
        return None

    def prepare(self, embeddings: Tensor) -> tuple[Tensor, ...]:
        """K tables `[B, N, D]`: each node's contribution to the query in each role."""
        weight = self.project_context.weight[:, : self.num_nodes * self.embed_dim]  # [D, K * D]
        return tuple(embeddings @ part.t() for part in weight.split(self.embed_dim, dim=1))

    def forward(self, tables: tuple[Tensor, ...], state: Mapping[str, Tensor]) -> Tensor:
        """Queries `[B, Q, D]`."""
        rows = [
            lookup_rows(table, index) for table, index in zip(tables, self.nodes(state), strict=True)
        ]
        query = rows[0]
        for row in rows[1:]:
            query = query + row
        features = self.features(state)
        if features is not None:
            weight = self.project_context.weight[:, self.num_nodes * self.embed_dim :]  # [D, F]
            if self.num_features == 1:  # an outer product needs no matrix multiplication
                query = torch.addcmul(query, features, weight[:, 0])
            else:
                query = query + features @ weight.t()
        bias = self.project_context.bias
        return query if bias is None else query + bias


class DynamicEmbedding(nn.Module):
    """Changes of the cached glimpse keys, glimpse values and logit keys at every step.

    Shapes:
        state with axes `[B, Q]` → three tensors `[B, Q, N, D]` to be added
    """

    def forward(self, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The three additive changes."""
        raise NotImplementedError


def coordinates(state: Mapping[str, Tensor], problem: str) -> Tensor:
    """Coordinates `[B, N, 2]`, or a clear refusal for instances given by a matrix alone."""
    if "locs" not in state:
        raise UnsupportedError(
            f"expected {problem} instances with coordinates `locs` for this embedding, got a matrix "
            "only; add coordinates, or pass an init_embedding that reads the matrix"
        )
    return state["locs"]
