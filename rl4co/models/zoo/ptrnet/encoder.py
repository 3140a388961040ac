"""Encoder of the Pointer Network: an LSTM reads the nodes in their order in the instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn

from rl4co.models.embeddings import EmbeddingConfig, make_embeddings
from rl4co.models.policies.autoregressive import AutoregressiveEncoder


class Encoded(NamedTuple):
    """What the decoder gets.

    Attributes:
        inputs: Embedded nodes, which the decoder's LSTM reads again as they are chosen `[B, N, D]`.
        references: Outputs of the encoder's LSTM, to point at `[B, N, H]`.
        hidden: Its last hidden state `[B, H]`.
        cell: Its last cell state `[B, H]`.
    """

    inputs: Tensor
    references: Tensor
    hidden: Tensor
    cell: Tensor


class PointerNetworkEncoder(AutoregressiveEncoder):
    """Init embedding, then an LSTM over the nodes.

    Args:
        embed_dim: Size D of the embedded nodes.
        hidden_dim: Size H of the LSTM.
        env_name: Environment whose init embedding to use.
        init_embedding: Instance → `[B, N, D]` (default: that of `env_name`, without bias).
        num_layers: Layers of the LSTM.

    Shapes:
        state with batch `[B]` → :class:`Encoded`, `[B, N, D]`
    """

    def __init__(
        self,
        embed_dim: int = 128,
        hidden_dim: int = 128,
        env_name: str = "tsp",
        init_embedding: nn.Module | None = None,
        num_layers: int = 1,
    ) -> None:
        super().__init__()
        if init_embedding is None:
            config = EmbeddingConfig(embed_dim, linear_bias=False)
            init_embedding = make_embeddings(env_name, config).init
        self.init_embedding = init_embedding
        self.lstm = nn.LSTM(embed_dim, hidden_dim, num_layers=num_layers, batch_first=True)

    def forward(self, td: Mapping[str, Tensor]) -> tuple[Encoded, Tensor]:
        """References and last states, and the embedded nodes."""
        inputs = self.init_embedding(td)  # [B, N, D]
        references, (hidden, cell) = self.lstm(inputs)
        return Encoded(inputs, references, hidden[-1], cell[-1]), inputs
