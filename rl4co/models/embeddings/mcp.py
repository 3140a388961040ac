"""MCP embeddings: weight and size of the sets in; what is uncovered, and the gain of each set."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor, nn

from rl4co.core.gains import coverage_gains
from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import EmbeddingConfig, EnvEmbeddings, Kind, LinearInitEmbedding
from rl4co.models.embeddings._selection import GainEmbedding, SelectionContext
from rl4co.models.nn.graph import Neighbors


class MCPInitEmbedding(LinearInitEmbedding):
    """Sum of linear maps of the items' weights: state → `[B, N, D]`.

    The sum over the items of a set, $\\sum_{t \\in S} (w_t v + b)$, is linear in two numbers, the
    weight and the size of the set. Weights are shares of the heaviest item's.
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.init_embed = nn.Linear(2, embed_dim, bias=False)

    def kinds(self, state: Mapping[str, Tensor]) -> list[Kind]:
        """All sets are alike."""
        membership = state["orig_membership"]  # [B, N, K]
        weights = relative_weights(state).unsqueeze(-2)  # [B, 1, M]
        total = coverage_gains(weights, membership).squeeze(-2)  # [B, N]
        size = (membership > 0).sum(-1).to(total.dtype)
        # Sets have about ten items: numbers around one.
        return [(torch.stack([total, size], -1) / 10.0, self.init_embed)]


class _SetGains:
    """Gains of the sets, of which context and keys are made."""

    #: `membership` is the same in all states of an instance.
    gain_keys = ("weights", "membership")

    def set_gains(self, state: Mapping[str, Tensor]) -> Tensor:
        """Uncovered weight of each set `[B, Q, N]`."""
        return coverage_gains(state["weights"], state["membership"][:, 0])


class MCPContext(_SetGains, SelectionContext):
    """Query from sets, weighted by their uncovered weight."""

    state_keys = (*_SetGains.gain_keys, "chosen", "i", "n_sets_to_choose")

    def uncovered(self, state: Mapping[str, Tensor]) -> Tensor:
        """Uncovered weight of each set."""
        return self.set_gains(state)

    def num_to_choose(self, state: Mapping[str, Tensor]) -> Tensor:
        """Sets."""
        return state["n_sets_to_choose"]


class MCPGainEmbedding(_SetGains, GainEmbedding):
    """Keys and values change with the uncovered weight of each set."""

    state_keys = _SetGains.gain_keys

    def gains(self, state: Mapping[str, Tensor]) -> Tensor:
        """Uncovered weight of each set."""
        return self.set_gains(state)


class MCPNeighbors(nn.Module):
    """The bipartite graph of sets and items; an item's feature is its weight."""

    is_bipartite = True

    def forward(self, state: Mapping[str, Tensor]) -> Neighbors:
        """The graph of a batch of instances."""
        weights = relative_weights(state).unsqueeze(-1)  # [B, M, 1]
        return Neighbors(state["orig_membership"].long() - 1, others=weights)


def relative_weights(state: Mapping[str, Tensor]) -> Tensor:
    """Weights of the items as shares of the largest `[B, M]`."""
    weights = state["orig_weights"]
    return weights / weights.amax(-1, keepdim=True).clamp_min(1e-12)


@EMBEDDINGS.register("mcp")
def mcp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init, context, dynamic and edge embeddings of the MCP."""
    return EnvEmbeddings(
        init=MCPInitEmbedding(config.embed_dim),
        context=MCPContext(config.embed_dim),
        dynamic=MCPGainEmbedding(config.embed_dim),
        edge=lambda _: MCPNeighbors(),
    )
