"""Policy of the Pointer Network (Vinyals et al., 2015; Bello et al., 2017).

Papers: https://arxiv.org/abs/1506.03134, https://arxiv.org/abs/1611.09940.
"""

from __future__ import annotations

import copy

from typing import Any

from torch import nn

from rl4co.core.checks import check_at_least
from rl4co.models.policies.autoregressive import AutoregressivePolicy
from rl4co.models.zoo.ptrnet.critic import PointerNetworkCritic
from rl4co.models.zoo.ptrnet.decoder import PointerNetworkDecoder
from rl4co.models.zoo.ptrnet.encoder import PointerNetworkEncoder


class PointerNetworkPolicy(AutoregressivePolicy):
    """LSTM encoder, LSTM decoder with glimpses, and a pointer.

    Args:
        env_name: Environment whose init embedding to use; its actions must be its nodes.
        embed_dim: Size D of the embedded nodes.
        hidden_dim: Size H of both LSTMs (default: `embed_dim`).
        num_encoder_layers: Layers of the encoder's LSTM.
        num_glimpses: Glimpses before pointing.
        tanh_clipping: Bound of the tanh clipping of logits.
        mask_inner: Whether glimpses look at allowed nodes only.
        init_embedding: Replaces the init embedding.
        kwargs: See :class:`ConstructivePolicy`.
    """

    def __init__(
        self,
        env_name: str = "tsp",
        embed_dim: int = 128,
        hidden_dim: int | None = None,
        num_encoder_layers: int = 1,
        num_glimpses: int = 1,
        tanh_clipping: float = 10.0,
        mask_inner: bool = True,
        init_embedding: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        hidden_dim = embed_dim if hidden_dim is None else hidden_dim
        check_at_least(
            1,
            embed_dim=embed_dim,
            hidden_dim=hidden_dim,
            num_encoder_layers=num_encoder_layers,
        )
        super().__init__(
            encoder=PointerNetworkEncoder(
                embed_dim, hidden_dim, env_name, init_embedding, num_encoder_layers
            ),
            decoder=PointerNetworkDecoder(embed_dim, hidden_dim, num_glimpses, mask_inner),
            env_name=env_name,
            tanh_clipping=tanh_clipping,
            **kwargs,
        )
        self.hidden_dim = hidden_dim

    def make_critic(self, **options: Any) -> PointerNetworkCritic:
        """A critic with a copy of the encoder; options are those of its class."""
        encoder = copy.deepcopy(self.encoder)
        return PointerNetworkCritic(encoder, **{"embed_dim": self.hidden_dim, **options})
