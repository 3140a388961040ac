"""Policy of the Dual-Aspect Collaborative Transformer (Ma et al., 2021).

Paper: https://arxiv.org/abs/2110.02544. Original code: yining043/VRP-DACT.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torch import Tensor, nn

from rl4co.envs.hooks import State
from rl4co.models.nn.dual_aspect import DualAspectLayer, MaxPooled, PairScores
from rl4co.models.nn.linear_stack import LinearStack
from rl4co.models.nn.positional import CyclicPositionalEncoding
from rl4co.models.nn.scores import ScoreFn, get_score
from rl4co.models.policies.choices import Choices
from rl4co.models.policies.improvement import (
    ImprovementDecoder,
    ImprovementEncoder,
    ImprovementPolicy,
    own_critic,
    reject_beside_encoder,
)


class DACTEncoder(ImprovementEncoder):
    """Dual-aspect attention over nodes and positions; the embeddings are both, side by side.

    Args:
        embed_dim: Size D of each aspect.
        num_heads: Heads.
        num_layers: Layers.
        feedforward_hidden: Width of the feed-forward layers.
        score: Compatibility of nodes: "dot", "cauchy" or a function.
        init_embedding: State → embeddings of the nodes `[B, N, D]` (default: a linear map of the
            coordinates).
        pos_embedding: Replaces the cyclic positional encoding.

    Shapes:
        state → `[B, N, 2 * D]`
    """

    def __init__(
        self,
        embed_dim: int = 64,
        num_heads: int = 4,
        num_layers: int = 3,
        feedforward_hidden: int = 64,
        score: str | ScoreFn = "dot",
        init_embedding: nn.Module | None = None,
        pos_embedding: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.init_embedding = init_embedding or _Coordinates(embed_dim)
        self.pos_embedding = pos_embedding or CyclicPositionalEncoding(embed_dim)
        self.layers = nn.ModuleList(
            DualAspectLayer(embed_dim, num_heads, feedforward_hidden, get_score(score))
            for _ in range(num_layers)
        )

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Embeddings of both aspects."""
        h = self.init_embedding(state)
        g = self.pos_embedding(state["visited_time"], h)
        for layer in self.layers:
            h, g = layer(h, g)
        return torch.cat([h, g], -1)


class DACTDecoder(ImprovementDecoder):
    """Scores of all pairs of nodes in both aspects, mixed to the logit of a 2-opt move.

    Args:
        embed_dim: Size D of each aspect.
        num_heads: Heads of each aspect.
        hidden: Width of the network that mixes the scores.
        dropout: Probability of dropout in it.
        score: Compatibility of both aspects: "dot", "cauchy" or a function.
    """

    moves = "two_opt"

    def __init__(
        self,
        embed_dim: int = 64,
        num_heads: int = 4,
        hidden: int = 32,
        dropout: float = 0.05,
        score: str | ScoreFn = "dot",
    ) -> None:
        super().__init__()
        self.node_pooling, self.position_pooling = MaxPooled(embed_dim), MaxPooled(embed_dim)
        self.node_scores = PairScores(embed_dim, num_heads, score=get_score(score))
        self.position_scores = PairScores(embed_dim, num_heads, score=get_score(score))
        self.network = LinearStack([2 * num_heads, hidden, hidden, 1], dropout)

    def num_choices(self, env: Any) -> int:
        """One: a pair of nodes."""
        return 1

    def forward(
        self,
        embeddings: Tensor,
        state: State,
        env: Any,
        choices: Choices,
        fixed_move: Tensor | None,
        phase: str,
    ) -> Tensor:
        """A pair of nodes `[B, 2]`."""
        h, g = embeddings.chunk(2, -1)
        h, g = self.node_pooling(h), self.position_pooling(g)
        scores = torch.cat([self.position_scores(g, g), self.node_scores(h, h)], 1)  # [B, 2H, N, N]
        logits = self.network(scores.permute(0, 2, 3, 1)).flatten(1)  # [B, N * N]
        size = h.shape[1]
        fixed_pair = None if fixed_move is None else fixed_move[:, 0] * size + fixed_move[:, 1]
        pair = choices.pick(logits, env.pair_mask(state).flatten(1), fixed_pair)
        return torch.stack([pair // size, pair % size], -1)


class DACTPolicy(ImprovementPolicy):
    """Dual-Aspect Collaborative Transformer: 2-opt for the TSP.

    Args:
        encoder: Replaces the encoder; returns both aspects, so 2D channels.
        decoder: Replaces the decoder.
        critic: True: the critic of the method; False: none; or a custom critic.
        env_name: Environment.
        embed_dim: Size D of each aspect.
        num_heads: Heads.
        num_encoder_layers: Encoder layers (default: 3).
        feedforward_hidden: Width of the encoder's feed-forward layers (default: D).
        score: Compatibility in place of the scalar product: "dot", "cauchy" (node aspect of the
            encoder, both aspects of the decoder) or a function.
        dropout: Probability of dropout in decoder and critic.
        init_embedding: Replaces the encoder's embedding of coordinates.
        pos_embedding: Replaces the cyclic positional encoding.
        critic_kwargs: Settings of the default critic, see
            :class:`~rl4co.models.nn.value.SolutionCritic`.
        kwargs: See :class:`ImprovementPolicy`.
    """

    inference = {"augment": "dihedral8", "restart_after": 250}

    def __init__(
        self,
        encoder: nn.Module | None = None,
        decoder: ImprovementDecoder | None = None,
        critic: nn.Module | bool = True,
        env_name: str = "tsp_kopt",
        embed_dim: int = 64,
        num_heads: int = 4,
        num_encoder_layers: int | None = None,
        feedforward_hidden: int | None = None,
        score: str | ScoreFn = "dot",
        dropout: float = 0.05,
        init_embedding: nn.Module | None = None,
        pos_embedding: nn.Module | None = None,
        critic_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        reject_beside_encoder(
            encoder, num_encoder_layers=num_encoder_layers, feedforward_hidden=feedforward_hidden,
            init_embedding=init_embedding, pos_embedding=pos_embedding,
            score=None if decoder is None or score == "dot" else score,
        )  # fmt: skip
        value = own_critic(
            critic, critic_kwargs, embed_dim=2 * embed_dim, num_heads=6, pooled_dim=2 * embed_dim,
            bias=False, use_max=False, use_cost=False, dropout=dropout,
        )  # fmt: skip
        super().__init__(
            encoder
            or DACTEncoder(
                embed_dim,
                num_heads,
                3 if num_encoder_layers is None else num_encoder_layers,
                feedforward_hidden or embed_dim,
                score,
                init_embedding,
                pos_embedding,
            ),
            decoder or DACTDecoder(embed_dim, num_heads, dropout=dropout, score=score),
            value,
            env_name,
            **kwargs,
        )


class _Coordinates(nn.Module):
    """A linear map of the coordinates, without bias: state → `[B, N, D]`."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2, embed_dim, bias=False)

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        return self.linear(state["locs"])
