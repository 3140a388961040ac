"""Embeddings written for the published package: plain modules that read a TensorDict.

A published context embedding maps node embeddings `[B, N, D]` and a state to queries. It knows
states with one batch axis `[B]`, and many know a second one `[B, Q]` for several solutions of an
instance. A published dynamic embedding knows one batch axis. The decoders of the library have
states with axes `[B, Q]`; here they are given to a module in the form that it understands.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tensordict import TensorDict
from torch import Tensor, nn

from rl4co.models.embeddings._base import DynamicEmbedding

#: Instances and queries on which it is tried whether a context knows both axes. The numbers differ,
#: so that taking one axis for the other shows.
_FEW_INSTANCES, _FEW_QUERIES = 2, 3


def is_published_context(context: nn.Module) -> bool:
    """Whether a context embedding neither prepares anything nor says which keys it reads."""
    return not hasattr(context, "prepare") and getattr(context, "state_keys", None) is None


def published_query(context: nn.Module, embeddings: Tensor, state: Mapping[str, Tensor]) -> Tensor:
    """Queries of a published context embedding.

    Args:
        context: (`[B, N, D]`, TensorDict) → `[B, D]` or `[B, Q, D]`.
        embeddings: Node embeddings `[B, N, D]`.
        state: Axes `[B, Q]`.

    Returns:
        `[B, Q, D]`.
    """
    shape = state["action_mask"].shape[:2]
    if shape[1] > 1 and _knows_queries(context, embeddings, state):
        return _by_both_axes(context, embeddings, state)
    return _by_rows(context, embeddings, state)


def _by_both_axes(context: nn.Module, embeddings: Tensor, state: Mapping[str, Tensor]) -> Tensor:
    shape = state["action_mask"].shape[:2]
    td = TensorDict(dict(state), batch_size=shape, device=embeddings.device)
    query = context(embeddings, td)
    if query.dim() == 2:  # all queries of an instance are the same, as before the first step
        query = query.unsqueeze(1)
    return query.expand(*shape, -1)  # [B, Q, D]


def _by_rows(context: nn.Module, embeddings: Tensor, state: Mapping[str, Tensor]) -> Tensor:
    """Every query as an instance of its own: right for any context, but nodes are copied."""
    shape = state["action_mask"].shape[:2]
    copies = embeddings.unsqueeze(1).expand(*shape, *embeddings.shape[1:])  # [B, Q, N, D]
    return context(copies.flatten(0, 1), _rows(state)).reshape(*shape, -1)  # [B, Q, D]


def _rows(state: Mapping[str, Tensor]) -> TensorDict:
    """A state with one batch axis: `[B, Q, ...]` → `[B * Q, ...]`."""
    batch, queries = state["action_mask"].shape[:2]
    rows = {key: value.flatten(0, 1) for key, value in state.items()}
    return TensorDict(rows, batch_size=[batch * queries], device=state["action_mask"].device)


@torch.no_grad()
def _knows_queries(context: nn.Module, embeddings: Tensor, state: Mapping[str, Tensor]) -> bool:
    """Whether a context gives the same queries by both axes as by rows, tried on a few."""
    few = {key: value[:_FEW_INSTANCES, :_FEW_QUERIES] for key, value in state.items()}
    nodes = embeddings[:_FEW_INSTANCES]
    rows = _by_rows(context, nodes, few)
    try:
        axes = _by_both_axes(context, nodes, few)
    except (RuntimeError, LookupError, ValueError, TypeError):  # it does not know the second axis
        return False
    return axes.shape == rows.shape and torch.allclose(axes, rows, rtol=1e-4, atol=1e-5)


def dynamic_changes(
    dynamic: nn.Module, state: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Changes `[B, Q, N, D]` of glimpse keys, glimpse values and logit keys.

    Args:
        dynamic: A :class:`DynamicEmbedding`, which knows the axes `[B, Q]`, or a published one:
            TensorDict of `[rows]` → three tensors `[rows, N, D]`.
        state: Axes `[B, Q]`.
    """
    if isinstance(dynamic, DynamicEmbedding):
        key, value, logit_key = dynamic(state)
        return key, value, logit_key
    shape = state["action_mask"].shape[:2]
    key, value, logit_key = (change.unflatten(0, shape) for change in dynamic(_rows(state)))
    return key, value, logit_key
