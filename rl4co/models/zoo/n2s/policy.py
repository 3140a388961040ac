"""Policy of the Neural Neighborhood Search (Ma et al., 2022).

Paper: https://arxiv.org/abs/2204.11399. Original code: yining043/PDP-N2S.
"""

from __future__ import annotations

from typing import Any

import torch

from torch import Tensor

from rl4co.envs.hooks import State
from rl4co.envs.successors import predecessors
from rl4co.models.nn.dual_aspect import MaxPooled
from rl4co.models.nn.pair_moves import RECENT, NodePairReinsertion, NodePairRemoval
from rl4co.models.policies.choices import Choices
from rl4co.models.policies.improvement import ImprovementDecoder
from rl4co.models.policies.synthesis_encoder import SynthesisPolicy


class N2SDecoder(ImprovementDecoder):
    """Takes out one order, then puts it in again.

    Args:
        embed_dim: Size D of embeddings.
        num_heads: Heads.
    """

    moves = "ruin_repair"

    def __init__(self, embed_dim: int = 128, num_heads: int = 4) -> None:
        super().__init__()
        self.pooling = MaxPooled(embed_dim)
        self.removal = NodePairRemoval(embed_dim, num_heads)
        self.reinsertion = NodePairReinsertion(embed_dim, num_heads)

    def num_choices(self, env: Any) -> int:
        """Two: an order, and its places."""
        return 2

    def forward(
        self,
        embeddings: Tensor,
        state: State,
        env: Any,
        choices: Choices,
        fixed_move: Tensor | None,
        phase: str,
    ) -> Tensor:
        """An order and the nodes after which its pickup and its delivery go `[B, 3]`."""
        h, successors = self.pooling(embeddings), state["rec_current"]
        size = h.shape[1]
        second = successors.gather(-1, successors)  # the second node after each
        recent, frequency = self._history(state, phase, h.dtype)
        logits = self.removal(h, predecessors(successors), second, recent, frequency)
        fixed_choice = None if fixed_move is None else fixed_move[:, 0]
        order = choices.pick(logits, env.removal_mask(state), fixed_choice)  # [B]
        pair = torch.stack([order + 1, order + 1 + size // 2], -1)  # [B, 2]
        table = self.reinsertion(h, pair, successors)  # [B, N, N]
        mask = env.reinsertion_mask(state, order)
        fixed_choice = None if fixed_move is None else fixed_move[:, 1] * size + fixed_move[:, 2]
        place = choices.pick(table.flatten(1), mask.flatten(1), fixed_choice)
        return torch.stack([order, place // size, place % size], -1)

    def _history(self, state: State, phase: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Whether an order was moved in the last three moves `[B, m, 3]`, and how often `[B, m]`.

        In training frequencies are over 2m moves, otherwise over m: a shorter memory searches more
        widely.
        """
        num_orders = state["visited_time"].shape[-1] // 2
        order = torch.arange(num_orders, device=state["visited_time"].device).unsqueeze(-1)
        moved = (state["action_record"].unsqueeze(-2) == order).to(dtype)  # [B, m, W]
        window = 2 * num_orders if phase == "train" else num_orders
        return moved[..., -RECENT:], moved[..., -window:].sum(-1) / window


class N2SPolicy(SynthesisPolicy):
    """Neural Neighborhood Search: removal and reinsertion of one order of the PDP.

    Args:
        decoder: Replaces the decoder.
        kwargs: See :class:`~rl4co.models.policies.synthesis_encoder.SynthesisPolicy`.

    Other arguments: see :class:`SynthesisPolicy`.
    """

    inference = {"augment": "random"}

    def __init__(
        self,
        decoder: ImprovementDecoder | None = None,
        env_name: str = "pdp_ruin_repair",
        embed_dim: int = 128,
        num_heads: int = 4,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            decoder or N2SDecoder(embed_dim, num_heads),
            env_name=env_name,
            embed_dim=embed_dim,
            num_heads=num_heads,
            **kwargs,
        )
