"""Policy of NeuOpt, flexible k-opt (Ma et al., 2023).

Paper: https://arxiv.org/abs/2310.18264. Original code: yining043/NeuOpt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torch import Tensor, nn

from rl4co.envs.hooks import State
from rl4co.models.nn.dual_stream import DualStreamDecoder
from rl4co.models.policies.choices import Choices
from rl4co.models.policies.improvement import ImprovementDecoder
from rl4co.models.policies.synthesis_encoder import CoordinateNetwork, SynthesisPolicy


class NeuOptDecoder(ImprovementDecoder):
    """Chooses the cuts of a k-opt move one after the other, and when to stop.

    The number of cuts is that of the environment.

    Args:
        embed_dim: Size D of embeddings.
    """

    moves = "k_opt"

    def __init__(self, embed_dim: int = 128) -> None:
        super().__init__()
        self.streams = DualStreamDecoder(embed_dim)

    def num_choices(self, env: Any) -> int:
        """One for each cut."""
        return env.k_max

    def forward(
        self,
        embeddings: Tensor,
        state: State,
        env: Any,
        choices: Choices,
        fixed_move: Tensor | None,
        phase: str,
    ) -> Tensor:
        """Nodes after which the tour is cut `[B, K]`."""
        fixed_nodes = fixed_move.unbind(-1) if fixed_move is not None else (None,) * env.k_max
        keys, inputs, hidden = self.streams.prepare(embeddings)
        logits, hidden = self.streams(keys, inputs, hidden)
        first = choices.pick(logits, env.first_cut_mask(state), fixed_nodes[0])  # [B]
        along, cuts = env.positions_from(state, first), [first]
        ended = torch.zeros_like(first, dtype=torch.bool)
        source = first  # where the next new edge begins
        for index in range(1, env.k_max):
            inputs = torch.stack([_rows(embeddings, cuts[-1]), _rows(embeddings, source)])
            logits, hidden = self.streams(keys, inputs, hidden)
            # After the end any mask will do, if it allows something.
            mask = env.next_cut_mask(along, cuts[-1], index) | ended.unsqueeze(-1)
            cut = choices.pick(logits, mask, fixed_nodes[index], active=~ended)
            cut = torch.where(ended, first, cut)
            source = state["rec_current"].gather(-1, cuts[-1].unsqueeze(-1)).squeeze(-1)
            ended = ended | env.ends_move(along, cuts[-1], cut)
            cuts.append(cut)
        return torch.stack(cuts, -1)


class NeuOptPolicy(SynthesisPolicy):
    """NeuOpt: flexible k-opt for the TSP. The encoder is that of N2S.

    Args:
        decoder: Replaces the decoder.
        embed_dim: Size D of embeddings.
        init_embedding: Replaces the encoder's two layers over the coordinates.
        dropout: Probability of dropout in the critic.
        env_params: Arguments of the policy's default environment (default: `k_max=4`).
        kwargs: See :class:`~rl4co.models.policies.synthesis_encoder.SynthesisPolicy`.
    """

    inference = {"augment": "dynamic"}

    def __init__(
        self,
        decoder: ImprovementDecoder | None = None,
        embed_dim: int = 128,
        init_embedding: nn.Module | None = None,
        dropout: float = 0.001,
        env_params: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if init_embedding is None and kwargs.get("encoder") is None:
            init_embedding = CoordinateNetwork(embed_dim)
        super().__init__(
            decoder or NeuOptDecoder(embed_dim),
            embed_dim=embed_dim,
            init_embedding=init_embedding,
            dropout=dropout,
            # With two cuts, too, a move is that of k-opt.
            env_params={"two_opt_mode": False, **(env_params or {"k_max": 4})},
            **kwargs,
        )


def _rows(embeddings: Tensor, node: Tensor) -> Tensor:
    """Embeddings of one node of each instance: `[B, N, D]`, `[B]` → `[B, D]`."""
    index = node[:, None, None].expand(-1, 1, embeddings.shape[-1])
    return embeddings.gather(1, index).squeeze(1)
