"""Embeddings in the published style."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import UnsupportedError
from rl4co.core.ops import gather_by_index
from rl4co.models.embeddings import EmbeddingConfig, cvrp, tsp


class EnvContext(nn.Module):
    """Base of context embeddings that see a state with batch `[B]`: $q = W [h_{cur}, s]$.

    Policies accept such a module as `context_embedding`. Contexts of the library derive from
    :class:`~rl4co.models.embeddings.ContextEmbedding`, which serves many solutions at a time.

    Args:
        embed_dim: Embedding size D.
        step_context_dim: Width of what is projected (default: D).
        linear_bias: Whether the projection has a bias.

    Shapes:
        `embeddings [B, N, D]`, state `[B]` → `[B, D]`; state with axes `[B, Q]` → `[B, Q, D]`
    """

    def __init__(
        self, embed_dim: int, step_context_dim: int | None = None, linear_bias: bool = False
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.project_context = nn.Linear(step_context_dim or embed_dim, embed_dim, bias=linear_bias)

    def _cur_node_embedding(self, embeddings: Tensor, td: TensorDictBase) -> Tensor:
        """Embedding of the current node `[B, D]`."""
        return gather_by_index(embeddings, td["current_node"])

    def _state_embedding(self, embeddings: Tensor, td: TensorDictBase) -> Tensor:
        """What else the query is made of `[B, F]`."""
        raise NotImplementedError

    def forward(self, embeddings: Tensor, td: TensorDictBase | Mapping[str, Tensor]) -> Tensor:
        """Queries; of several solutions per instance, each is a row of its own."""
        if td["action_mask"].dim() == 3:
            batch, num = td["action_mask"].shape[:2]
            rows = TensorDict(  # [B, Q, ...] -> [B * Q, ...]
                {key: value.flatten(0, 1) for key, value in td.items()}, batch_size=[batch * num]
            )
            query: Tensor = self(embeddings.repeat_interleave(num, 0), rows)
            return query.unflatten(0, (batch, num))
        assert isinstance(td, TensorDictBase)
        parts = self._cur_node_embedding(embeddings, td), self._state_embedding(embeddings, td)
        return self.project_context(torch.cat(parts, -1))


class StaticEmbedding(nn.Module):
    """A dynamic embedding for problems in which keys and values never change: three zeros."""

    def __init__(self, embed_dim: int | None = None, linear_bias: bool = False) -> None:
        super().__init__()

    def forward(self, td: TensorDictBase) -> tuple[int, int, int]:
        """No changes."""
        return 0, 0, 0


class _PublishedArguments:
    """Constructor of an edge embedding with the published arguments.

    Args:
        embed_dim: Embedding size D.
        linear_bias: Whether the linear maps have biases.
        sparsify: Only True is supported.
        k_sparse: Nearest neighbours of a node.
    """

    def __init__(
        self,
        embed_dim: int,
        linear_bias: bool = True,
        sparsify: bool = True,
        k_sparse: int | None = None,
    ) -> None:
        if not sparsify:
            raise UnsupportedError(
                "expected a sparse graph, got sparsify=False; pass k_sparse with as many "
                "neighbours as there are nodes"
            )
        super().__init__(EmbeddingConfig(embed_dim, linear_bias, k_sparse))  # type: ignore[call-arg]


class TSPEdgeEmbedding(_PublishedArguments, tsp.TSPEdgeEmbedding):
    """Nearest neighbours, as a sparse graph of plain tensors."""


class CVRPEdgeEmbedding(_PublishedArguments, cvrp.CVRPEdgeEmbedding):
    """Nearest customers and the depot, as a sparse graph of plain tensors."""
