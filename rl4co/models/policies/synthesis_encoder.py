"""Encoder with synthesis attention, of N2S and NeuOpt, and policies that have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torch import Tensor, nn

from rl4co.core.ops import gather_points
from rl4co.envs.successors import tour_from_order
from rl4co.models.nn.heads import uniform_
from rl4co.models.nn.linear_stack import LinearStack
from rl4co.models.nn.positional import CyclicPositionalEncoding
from rl4co.models.nn.synthesis import PositionScores, SynthesisLayer
from rl4co.models.policies.improvement import (
    ImprovementDecoder,
    ImprovementEncoder,
    ImprovementPolicy,
    own_critic,
    reject_beside_encoder,
)


class SynthesisEncoder(ImprovementEncoder):
    """Synthesis attention over nodes in the order in which the solution visits them.

    In that order the positional vectors, and so the auxiliary scores, are the same for all
    instances of a batch. The embeddings come back in the order of the nodes.

    Papers: Ma et al. (2022), N2S, https://arxiv.org/abs/2204.11399; Ma et al. (2023), NeuOpt,
    https://arxiv.org/abs/2310.18264

    Args:
        embed_dim: Size D of embeddings.
        num_heads: Heads.
        num_layers: Layers.
        feedforward_hidden: Width of the feed-forward layers.
        init_embedding: State → embeddings of the nodes `[B, N, D]` (default: a linear map of the
            coordinates).
        pos_embedding: Replaces the cyclic positional encoding: positions `[N]` and a tensor whose
            device and dtype to take → vectors `[N, D]`.
    """

    def __init__(
        self,
        embed_dim: int = 128,
        num_heads: int = 4,
        num_layers: int = 3,
        feedforward_hidden: int = 128,
        init_embedding: nn.Module | None = None,
        pos_embedding: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.init_embedding = init_embedding or LinearCoordinates(embed_dim)
        self.pos_embedding = pos_embedding or CyclicPositionalEncoding(embed_dim)
        self.position_scores = PositionScores(embed_dim, num_heads)
        self.layers = nn.ModuleList(
            SynthesisLayer(embed_dim, num_heads, feedforward_hidden) for _ in range(num_layers)
        )

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Embeddings `[B, N, D]`."""
        order = state["visited_time"]
        nodes = self.init_embedding(state)  # [B, N, D]
        places = torch.arange(order.shape[-1], device=order.device)
        auxiliary = self.position_scores(self.pos_embedding(places, nodes))
        x = gather_points(nodes, tour_from_order(order))  # in the order of the visits
        for layer in self.layers:
            x = layer(x, auxiliary)
        return gather_points(x, order)


class SynthesisPolicy(ImprovementPolicy):
    """An improvement policy with a synthesis encoder.

    Args:
        decoder: Decoder.
        encoder: Replaces the encoder.
        critic: True: one that looks at the best cost so far; False: none; or a custom one.
        env_name: Environment.
        embed_dim: Size D of embeddings.
        num_heads: Heads.
        num_encoder_layers: Encoder layers (default: 3).
        feedforward_hidden: Width of the encoder's feed-forward layers (default: D).
        dropout: Probability of dropout in the critic.
        init_embedding: Replaces the encoder's embedding of coordinates.
        pos_embedding: Replaces the cyclic positional encoding.
        critic_kwargs: Settings of the method's own critic, see
            :class:`~rl4co.models.nn.value.SolutionCritic`.
        kwargs: See :class:`ImprovementPolicy`.
    """

    def __init__(
        self,
        decoder: ImprovementDecoder,
        encoder: nn.Module | None = None,
        critic: nn.Module | bool = True,
        env_name: str = "tsp_kopt",
        embed_dim: int = 128,
        num_heads: int = 4,
        num_encoder_layers: int | None = None,
        feedforward_hidden: int | None = None,
        dropout: float = 0.01,
        init_embedding: nn.Module | None = None,
        pos_embedding: nn.Module | None = None,
        critic_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        reject_beside_encoder(
            encoder, num_encoder_layers=num_encoder_layers, feedforward_hidden=feedforward_hidden,
            init_embedding=init_embedding, pos_embedding=pos_embedding,
        )  # fmt: skip
        if encoder is None:
            layers = 3 if num_encoder_layers is None else num_encoder_layers
            width = feedforward_hidden or embed_dim
            encoder = SynthesisEncoder(
                embed_dim, num_heads, layers, width, init_embedding, pos_embedding
            )
        sizes = {"embed_dim": embed_dim, "num_heads": num_heads, "dropout": dropout}
        value = own_critic(critic, critic_kwargs, **sizes)
        super().__init__(encoder, decoder, value, env_name, **kwargs)


class LinearCoordinates(nn.Module):
    """A linear map of the coordinates, without bias: state → `[B, N, D]`."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2, embed_dim, bias=False)
        uniform_(self.linear.weight, 2)

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Embeddings of the nodes."""
        return self.linear(state["locs"])


class CoordinateNetwork(nn.Module):
    """Two layers over the coordinates: state → `[B, N, D]`."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.network = LinearStack([2, embed_dim // 2, embed_dim])

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Embeddings of the nodes."""
        return self.network(state["locs"])
