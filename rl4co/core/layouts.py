"""Reads state keys whose shapes differ between environments.

An environment may keep a number per solution as `[*B]` or `[*B, 1]`, a node as either, and a value
of each node with or without one for the depot. Networks read such keys here and see one layout. The
mask, `[*B, N]` everywhere, tells what the batch axes are; without one, values stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F

from torch import Tensor

from rl4co.core.errors import ConfigError


def per_solution(state: Mapping[str, Tensor], key: str) -> Tensor:
    """A number of each solution `[*B, 1]`; where nodes have it, that of the depot."""
    value, mask = state[key], state.get("action_mask", None)
    if mask is not None and value.dim() < mask.dim():
        return value.unsqueeze(-1)  # [*B] -> [*B, 1]
    return value if value.shape[-1] == 1 else value[..., :1]


def node_index(state: Mapping[str, Tensor], key: str) -> Tensor:
    """A node of each solution `[*B]`."""
    value, mask = state[key], state.get("action_mask", None)
    return value.squeeze(-1) if mask is not None and value.dim() == mask.dim() else value


def per_node(state: Mapping[str, Tensor], key: str, num_nodes: int) -> Tensor:
    """A value of each node `[*B, N]`; 0 for a depot that has none."""
    value = state[key]
    if value.shape[-1] == num_nodes:
        return value
    if value.shape[-1] == num_nodes - 1:
        return F.pad(value, (1, 0))  # [*B, N - 1] -> [*B, N]
    raise ConfigError(
        f"expected {key!r} with a value for each of {num_nodes} nodes or of {num_nodes - 1} "
        f"customers, got {list(value.shape)}; change what _reset returns, or pass custom "
        "embeddings (init_embedding)"
    )
