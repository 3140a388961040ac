"""Base classes of init, context and dynamic embeddings.

A problem's embeddings map its instance and state to what the policy computes with:

* init: instance → node embeddings, once per instance;
* context: state → query, at every step;
* dynamic: state → changes of the cached keys and values, at every step (few problems need it).
"""

from __future__ import annotations

import dataclasses

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.core.errors import UnsupportedError
from rl4co.models.nn.factors import Factors, Kind, embed_kinds, factorize


@dataclasses.dataclass(frozen=True)
class EmbeddingConfig:
    """What a problem's embeddings are built from.

    Attributes:
        embed_dim: Embedding size D.
        linear_bias: Whether the init embeddings have a bias.
        k_sparse: Candidate edges per node of sparse graphs; None: a share of their number.
        edge_options: Settings of a problem's edge embedding.
    """

    embed_dim: int = 128
    linear_bias: bool = True
    k_sparse: int | None = None
    edge_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class EnvEmbeddings:
    """The embeddings of one problem.

    Attributes:
        init: Instance → node embeddings `[B, N, D]`.
        context: State → query `[B, Q, D]`.
        dynamic: State → changes of keys and values, or None if these never change.
        edge: Config → module that makes a sparse graph of an instance, or None. Built on demand:
            few policies need it, and all others would begin with other random weights.
    """

    init: nn.Module
    context: nn.Module
    dynamic: nn.Module | None = None
    edge: Callable[[EmbeddingConfig], nn.Module] | None = None


class LinearInitEmbedding(nn.Module):
    """Nodes of one or more kinds, with a linear map for each kind: state → `[B, N, D]`."""

    def kinds(self, state: Mapping[str, Tensor]) -> list[Kind]:
        """Features `[B, n, F]` of the nodes of each kind and their layer, in the order of nodes."""
        raise NotImplementedError

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Node embeddings."""
        return embed_kinds(self.kinds(state))

    def factors(self, state: Mapping[str, Tensor], embeddings: Tensor) -> Factors | None:
        """Factors of the node embeddings; None if a subclass or a hook may have changed these."""
        if type(self).forward is not LinearInitEmbedding.forward or self._forward_hooks:
            return None
        return factorize(embeddings, self.kinds(state))


class DepotInitEmbedding(LinearInitEmbedding):
    """One linear map for the depot (x, y), one for customers: state → `[B, N, D]`.

    Attributes:
        num_features: What a customer has besides x and y.
    """

    num_features: ClassVar[int] = 0

    def __init__(self, embed_dim: int, linear_bias: bool = True) -> None:
        super().__init__()
        self.init_embed = nn.Linear(2 + self.num_features, embed_dim, linear_bias)
        self.init_embed_depot = nn.Linear(2, embed_dim, linear_bias)

    def features(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Coordinates `[B, N, 2]`, and what else customers have `[B, N, ...]`; depot first."""
        raise NotImplementedError

    def kinds(self, state: Mapping[str, Tensor]) -> list[Kind]:
        """The depot, and customers with all of their features."""
        locs, *others = self.features(state)
        customers = torch.cat([locs, *others], -1)[:, 1:]  # [B, N - 1, 2 + F]
        return [(locs[:, :1], self.init_embed_depot), (customers, self.init_embed)]


class ContextCache(NamedTuple):
    """Contributions of all nodes to a query, as rows of one flat table.

    Attributes:
        table: `[B * N * K (+ extra rows), D]`; row `(b * N + n) * K + k` is node n of instance b in
            role k.
        offset: Row of each instance's first node in each role `[B, 1, K]`.
        feature_weight: Weights of the features `[F, D]`.
        blank: Rows `[K]` for a state without nodes yet, where a problem has such states.
    """

    table: Tensor
    offset: Tensor
    feature_weight: Tensor
    blank: Tensor | None = None


class ContextEmbedding(nn.Module):
    """Query of a decoding step from a few nodes' embeddings and a few features of the state.

    $$q = W [h_{i_1}, \\dots, h_{i_K}, f_1, \\dots, f_F]$$

    The product with the node embeddings is taken once per instance, for all nodes in all roles
    (:meth:`prepare`); a step only adds up rows. Subclasses say which nodes and features.

    Args:
        embed_dim: Embedding size D.
        num_nodes: Nodes K whose embeddings enter the query.
        num_features: Features F of the state.
        bias: Whether the projection has a bias.

    Shapes:
        `prepare`: `[B, N, D]` → cache; `forward`: state with axes `[B, Q]` → `[B, Q, D]`
    """

    #: State keys that :meth:`nodes` and :meth:`features` read, recorded for the replay; None (not
    #: known) makes training follow the steps one by one.
    state_keys: tuple[str, ...] | None = None

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

    def prepare(self, embeddings: Tensor) -> ContextCache:
        """The table of all nodes' contributions, in one product."""
        batch, num_nodes, dim = embeddings.shape
        weight = self.project_context.weight[:, : self.num_nodes * dim]  # [D, K * D]
        by_role = weight.unflatten(1, (self.num_nodes, dim)).transpose(0, 1).flatten(0, 1)
        table = F.linear(embeddings, by_role).view(-1, dim)  # [B * N * K, D]
        rows = torch.arange(table.shape[0], device=embeddings.device)
        offset = rows.view(batch, num_nodes, self.num_nodes)[:, :1]  # [B, 1, K]
        feature_weight = self.project_context.weight[:, self.num_nodes * dim :].t()  # [F, D]
        return ContextCache(table, offset, feature_weight)

    def rows(self, cache: ContextCache, state: Mapping[str, Tensor]) -> Tensor:
        """Rows of the table `[B, Q, K]` that add up to the query."""
        nodes = torch.stack(self.nodes(state), -1)  # [B, Q, K]
        return torch.add(cache.offset, nodes, alpha=self.num_nodes)

    def forward(self, cache: ContextCache, state: Mapping[str, Tensor]) -> Tensor:
        """Queries `[B, Q, D]`."""
        query = _sum_rows(cache.table, self.rows(cache, state))
        features = self.features(state)
        if features is not None:
            rows = features.flatten(0, -2)  # [B * Q, F]
            query = torch.addmm(query.flatten(0, -2), rows, cache.feature_weight).view_as(query)
        bias = self.project_context.bias
        return query if bias is None else query + bias


def _sum_rows(table: Tensor, rows: Tensor) -> Tensor:
    """Sums of rows of a table: `[R, D], [B, Q, K]` → `[B, Q, D]`."""
    if rows.shape[-1] == 1:
        return F.embedding(rows.squeeze(-1), table)
    if rows.numel() <= 2**11:  # little to do: the call itself is what costs
        return F.embedding(rows, table).sum(-2)
    # Looks up and adds in one go, without the rows in memory.
    return F.embedding_bag(rows.flatten(0, 1), table, mode="sum").view(*rows.shape[:2], -1)


class DynamicEmbedding(nn.Module):
    """Changes of the cached glimpse keys, glimpse values and logit keys at every step.

    Shapes:
        state with axes `[B, Q]` → three tensors `[B, Q, N, D]` to be added
    """

    def forward(self, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The three additive changes."""
        raise NotImplementedError


class LinearDynamicEmbedding(DynamicEmbedding):
    """Changes that are linear in one feature per node: $\\Delta K_n = x_n w^K$, and so on.

    Such changes have rank one, so the decoder need not form them: a query meets them as
    $x_n \\, (q^\\top w^K)$, for all steps at once.

    Args:
        embed_dim: Embedding size D.

    Shapes:
        state with axes `[B, Q]` → three tensors `[B, Q, N, D]` to be added
    """

    #: State keys that :meth:`features` reads.
    state_keys: tuple[str, ...]

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.projection = nn.Linear(1, 3 * embed_dim, bias=False)

    def features(self, state: Mapping[str, Tensor]) -> Tensor:
        """One number per node `[B, Q, N]`."""
        raise NotImplementedError

    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """Directions `[D]` of the changes of glimpse keys, glimpse values and logit keys."""
        key, value, logit_key = self.projection.weight.squeeze(-1).chunk(3)
        return key, value, logit_key

    def forward(self, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The changes written out, for decoders that want them so."""
        key, value, logit_key = self.projection(self.features(state).unsqueeze(-1)).chunk(3, -1)
        return key, value, logit_key


def coordinates(state: Mapping[str, Tensor], problem: str) -> Tensor:
    """Coordinates `[B, N, 2]`, or a clear refusal for instances given by a matrix alone."""
    if "locs" not in state:
        raise UnsupportedError(
            f"expected {problem} instances with coordinates `locs` for this embedding, got a "
            "matrix only; add coordinates, or pass an init_embedding that reads the matrix"
        )
    return state["locs"]
