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

from rl4co import kernels
from rl4co.core.adapters import adapt
from rl4co.core.errors import UnsupportedError
from rl4co.core.layouts import node_index
from rl4co.core.ops import gather_points

#: Nodes of one kind, one after the other: features `[B, n, F]` and the layer that embeds them.
Kind = tuple[Tensor, nn.Module]


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
            few policies need it, and it would change the random weights of all others.
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
        return torch.cat([layer(features) for features, layer in self.kinds(state)], 1)


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


class ContextTable(NamedTuple):
    """Contributions of all nodes to a query, as rows of one flat table.

    Attributes:
        rows: `[B * N * K (+ extra rows), D]`; row `(b * N + n) * K + k` is node n of instance b in
            role k.
        offset: Row of each instance's first node in each role `[B, 1, K]`.
        feature_weight: Weights of the features `[F, D]`.
        blank: Rows `[K]` for a state without nodes yet, where a problem has such states.
    """

    rows: Tensor
    offset: Tensor
    feature_weight: Tensor
    blank: Tensor | None = None


class ContextEmbedding(nn.Module):
    """Query of a decoding step from a few nodes' embeddings and a few features of the state.

    $$q = W [h_{i_1}, \\dots, h_{i_K}, f_1, \\dots, f_F]$$

    Subclasses define :meth:`nodes` and :meth:`features`. If the projection is an ordinary
    linear layer, its product with the node embeddings is computed once per instance for all nodes
    in all roles (:class:`ContextTable`), and a step only adds up rows.

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

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        adapt("context_class", cls)

    def __init__(
        self, embed_dim: int, num_nodes: int = 1, num_features: int = 0, bias: bool = False
    ) -> None:
        super().__init__()
        self.embed_dim, self.num_nodes, self.num_features = embed_dim, num_nodes, num_features
        width = num_nodes * embed_dim + num_features
        self.project_context = nn.Linear(width, embed_dim, bias=bias)

    def nodes(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Indices `[B, Q]` of the K nodes."""
        return (node_index(state, "current_node"),)

    def features(self, state: Mapping[str, Tensor]) -> Tensor | None:
        """Features `[B, Q, F]`, or None if there are none."""
        return None

    def before_first_node(self, state: Mapping[str, Tensor]) -> Tensor | None:
        """Solutions `[B, Q, 1]` that have visited no node yet; None: there is always a last one."""
        return None

    def prepare(self, embeddings: Tensor) -> Tensor | ContextTable:
        """The table of all nodes' contributions, or the node embeddings themselves."""
        return self.table(embeddings) if kernels.may_replace(self.project_context) else embeddings

    def forward(self, cache: Tensor | ContextTable, state: Mapping[str, Tensor]) -> Tensor:
        """Queries `[B, Q, D]`."""
        if isinstance(cache, ContextTable):
            return self._look_up(cache, state)
        inputs = self.node_inputs(cache, state)  # [B, Q, K * D]
        features = self.features(state)
        return self.project_context(
            inputs if features is None else torch.cat([inputs, features], -1)
        )

    def node_inputs(self, embeddings: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Embeddings of the K nodes side by side: `[B, N, D]` → `[B, Q, K * D]`."""
        picked = [gather_points(embeddings, node) for node in self.nodes(state)]
        return picked[0] if len(picked) == 1 else torch.cat(picked, -1)

    # ---------------------------------------------------------------- the same by a table

    def table(self, embeddings: Tensor) -> ContextTable:
        """All nodes in all roles `[B, N, D]`, multiplied in one product."""
        batch, num_nodes, dim = embeddings.shape
        weight = self.project_context.weight[:, : self.num_nodes * dim]  # [D, K * D]
        by_role = weight.unflatten(1, (self.num_nodes, dim)).transpose(0, 1).flatten(0, 1)
        rows = F.linear(embeddings, by_role).view(-1, dim)  # [B * N * K, D]
        numbers = torch.arange(rows.shape[0], device=embeddings.device)
        offset = numbers.view(batch, num_nodes, self.num_nodes)[:, :1]  # [B, 1, K]
        feature_weight = self.project_context.weight[:, self.num_nodes * dim :].t()  # [F, D]
        return ContextTable(rows, offset, feature_weight)

    def table_rows(self, table: ContextTable, state: Mapping[str, Tensor]) -> Tensor:
        """Rows of the table `[B, Q, K]` that add up to the query."""
        nodes = torch.stack(self.nodes(state), -1)  # [B, Q, K]
        return torch.add(table.offset, nodes, alpha=self.num_nodes)

    def _look_up(self, table: ContextTable, state: Mapping[str, Tensor]) -> Tensor:
        rows = self.table_rows(table, state)  # [B, Q, K]
        # Looks up and adds in one call, without storing the rows.
        query = F.embedding_bag(rows.flatten(0, 1), table.rows, mode="sum")  # [B * Q, D]
        features = self.features(state)
        if features is not None:
            query = torch.addmm(query, features.flatten(0, -2), table.feature_weight)
        bias = self.project_context.bias
        query = query if bias is None else query + bias
        return query.view(*rows.shape[:2], -1)  # [B, Q, D]


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
        one = next(self.projection.parameters()).new_ones(1)
        key, value, logit_key = self.projection(one).chunk(3)
        return key, value, logit_key

    @property
    def is_linear(self) -> bool:
        """Whether the projection is an ordinary linear layer, so that three directions tell all."""
        return kernels.may_replace(self.projection)

    def forward(self, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The changes written out, for decoders that want them so."""
        key, value, logit_key = self.projection(self.features(state).unsqueeze(-1)).chunk(3, -1)
        return key, value, logit_key


def coordinates(state: Mapping[str, Tensor], problem: str) -> Tensor:
    """Coordinates `[B, N, 2]`, or an error for instances with a matrix only."""
    if "locs" not in state:
        raise UnsupportedError(
            f"expected {problem} instances with coordinates `locs` for this embedding, got a "
            "matrix only; add coordinates, or pass an init_embedding that reads the matrix"
        )
    return state["locs"]
