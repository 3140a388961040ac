"""Embeddings written for the published package: plain modules that read a TensorDict.

A published context embedding maps node embeddings `[B, N, D]` and a state to queries. It supports
states with one batch axis `[B]`, and many support a second one `[B, Q]` for several solutions of an
instance. A published dynamic embedding supports one batch axis. The decoders of the library pass a
mapping with axes `[B, Q]`. :func:`adapt_context` and :func:`adapt_dynamic` give a module both
forms: its class becomes a subclass, so that names of weights stay as they are.
"""

from __future__ import annotations

import functools

from collections.abc import Mapping
from typing import Any

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.core.ops import gather_by_index
from rl4co.models.embeddings import DynamicEmbedding, EmbeddingConfig, cvrp, tsp

#: Instances and queries on which to find out whether a context supports both axes. The numbers
#: differ, so that mistaking one axis for the other is noticed.
_TRIAL_INSTANCES, _TRIAL_QUERIES = 2, 3


# ---------------------------------------------------------------- adapters


def adapt_context(context: nn.Module) -> nn.Module:
    """A context embedding in the form of the library, see :class:`_QueryContext`.

    Args:
        context: Returned as it is if it has `prepare` or declares `state_keys`.
    """
    if hasattr(context, "prepare") or getattr(context, "state_keys", None) is not None:
        return context
    return _add_methods(context, _QueryContext)


def adapt_dynamic(dynamic: nn.Module) -> nn.Module | None:
    """A dynamic embedding in the form of the library, or None for one that always returns zeros.

    Args:
        dynamic: A :class:`~rl4co.models.embeddings.DynamicEmbedding` is returned as it is.
    """
    if isinstance(dynamic, DynamicEmbedding | _QueryDynamic):
        return dynamic
    return None if _is_static(dynamic) else _add_methods(dynamic, _QueryDynamic)


def check_context_class(cls: type) -> type:
    """Rejects published methods of a library context, which nothing would call.

    Args:
        cls: A subclass of :class:`~rl4co.models.embeddings.ContextEmbedding`, after its creation.
    """
    methods = [name for name in ("_state_embedding", "_cur_node_embedding") if name in vars(cls)]
    if methods and "forward" not in vars(cls):
        raise UnsupportedError(
            f"expected {cls.__name__} to define nodes and features, got {', '.join(methods)}, "
            "which nothing calls; derive from EnvContext of "
            "rl4co.models.nn.env_embeddings.context to keep them"
        )
    return cls


def _is_static(dynamic: nn.Module) -> bool:
    """Whether an embedding has no weights and returns zeros without reading the state."""
    if next(dynamic.parameters(), None) is not None:
        return False
    try:
        changes = dynamic(TensorDict({}, batch_size=[]))
    except Exception:
        return False
    if any(isinstance(change, Tensor) for change in changes):
        return False
    if any(change != 0 for change in changes):
        raise ConfigError(
            "expected changes [B, N, D] of keys and values, or zeros for none, from "
            f"{type(dynamic).__name__}, got {changes}"
        )
    return True


def _add_methods(module: nn.Module, mixin: Any) -> nn.Module:
    """The module itself, whose class becomes a subclass with the methods of `mixin`."""
    cls: Any = type(module)
    module.__class__ = _subclass(mixin, cls)
    return module


@functools.cache
def _subclass(mixin: Any, cls: Any) -> Any:
    copied = ("__module__", "__qualname__", "__doc__")
    return type(cls.__name__, (mixin, cls), {name: getattr(cls, name) for name in copied})


def _unpickle(mixin: Any, cls: Any) -> Any:
    subclass = _subclass(mixin, cls)
    return subclass.__new__(subclass)


class _Adapted:
    """Base of the mixins: pickles refer to the original class, not to the subclass."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        mixin, cls = type(self).__bases__
        return _unpickle, (mixin, cls), self.__dict__


class _QueryContext(_Adapted):
    """Calls a published context with states that it supports.

    Shapes:
        node embeddings `[B, N, D]`, state with axes `[B, Q]` → `[B, Q, D]`
    """

    def prepare(self, embeddings: Tensor) -> Tensor:
        """The node embeddings themselves."""
        return embeddings

    def forward(self, embeddings: Tensor, state: TensorDictBase | Mapping[str, Tensor]) -> Tensor:
        """Queries; a TensorDict is passed on to the original `forward`."""
        published = super().forward  # type: ignore[misc]
        if isinstance(state, TensorDictBase):
            query: Tensor = published(embeddings, state)
            return query
        if state["action_mask"].shape[1] > 1 and _supports_queries(published, embeddings, state):
            return _by_both_axes(published, embeddings, state)
        return _by_rows(published, embeddings, state)


class _QueryDynamic(_Adapted):
    """Calls a published dynamic embedding with rows.

    Shapes:
        state with axes `[B, Q]` → three tensors `[B, Q, N, D]`
    """

    def forward(
        self, state: TensorDictBase | Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Changes of keys and values; a TensorDict is passed on to the original `forward`."""
        published = super().forward  # type: ignore[misc]
        if isinstance(state, TensorDictBase):
            key, value, logit_key = published(state)
        else:
            axes = state["action_mask"].shape[:2]
            key, value, logit_key = (
                change.unflatten(0, axes) for change in published(_rows(state))
            )
        return key, value, logit_key


def _by_both_axes(context: Any, embeddings: Tensor, state: Mapping[str, Tensor]) -> Tensor:
    axes = state["action_mask"].shape[:2]
    td = TensorDict(dict(state), batch_size=axes, device=embeddings.device)
    query = context(embeddings, td)
    if query.dim() == 2:  # all queries of an instance are the same, as before the first step
        query = query.unsqueeze(1)
    return query.expand(*axes, -1)  # [B, Q, D]


def _by_rows(context: Any, embeddings: Tensor, state: Mapping[str, Tensor]) -> Tensor:
    """Treats every query as an instance: correct for any context, but nodes are copied."""
    axes = state["action_mask"].shape[:2]
    copies = embeddings.unsqueeze(1).expand(*axes, *embeddings.shape[1:])  # [B, Q, N, D]
    return context(copies.flatten(0, 1), _rows(state)).reshape(*axes, -1)  # [B, Q, D]


def _rows(state: Mapping[str, Tensor]) -> TensorDict:
    """A state with one batch axis: `[B, Q, ...]` → `[B * Q, ...]`."""
    batch, queries = state["action_mask"].shape[:2]
    rows = {key: value.flatten(0, 1) for key, value in state.items()}
    return TensorDict(rows, batch_size=[batch * queries], device=state["action_mask"].device)


@torch.no_grad()
def _supports_queries(context: Any, embeddings: Tensor, state: Mapping[str, Tensor]) -> bool:
    """Whether a context returns the same queries for both axes as for rows, on a few of them."""
    few = {key: value[:_TRIAL_INSTANCES, :_TRIAL_QUERIES] for key, value in state.items()}
    nodes = embeddings[:_TRIAL_INSTANCES]
    rows = _by_rows(context, nodes, few)
    try:
        axes = _by_both_axes(context, nodes, few)
    except (RuntimeError, LookupError, ValueError, TypeError):  # the second axis is not supported
        return False
    return axes.shape == rows.shape and torch.allclose(axes, rows, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- published classes


class EnvContext(nn.Module):
    """Base of published context embeddings: $q = W [h_{cur}, s]$.

    Policies accept such a module as `context_embedding`. Contexts of the library derive from
    :class:`~rl4co.models.embeddings.ContextEmbedding`, which computes many queries at a time.

    Args:
        embed_dim: Embedding size D.
        step_context_dim: Width of what is projected (default: D).
        linear_bias: Whether the projection has a bias.

    Shapes:
        `embeddings [B, N, D]`, state `[B]` → `[B, D]`
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
        """Further features of the query `[B, F]`."""
        raise NotImplementedError

    def forward(self, embeddings: Tensor, td: TensorDictBase) -> Tensor:
        """Queries."""
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
