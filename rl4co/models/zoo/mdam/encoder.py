"""Encoder of MDAM: that of the Attention Model, whose last layer can be asked again."""

from __future__ import annotations

import dataclasses

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.models.nn.transformer import GraphAttentionNetwork
from rl4co.models.zoo.am import AttentionModelEncoder


@dataclasses.dataclass
class MDAMHidden:
    """What the encoder knows of a batch of instances.

    Attributes:
        nodes: Node embeddings `[B, N, D]`.
        below: Input of the last layer `[B, N, D]`.
        last_layer: `below`, mask `[B, N, N]` → node embeddings.
        notes: By-products of the call of the policy that this belongs to.
    """

    nodes: Tensor
    below: Tensor
    last_layer: Callable[[Tensor, Tensor], Tensor]
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)

    def glimpse(self, visible: Tensor) -> Tensor:
        """Node embeddings `[R, N, D]` if all attend to the visible nodes `[R, N]` alone.

        Rows repeat the instances, `R = K * B` with row `k * B + b`.
        """
        rows, num_nodes = visible.shape
        below = self.below.repeat(rows // len(self.below), 1, 1)  # [R, N, D]
        mask = visible.unsqueeze(1).expand(rows, num_nodes, num_nodes)
        return self.last_layer(below, mask)


class MDAMEncoder(AttentionModelEncoder):
    """Graph attention encoder that keeps what embeddings of a later state are made of.

    In the embedding glimpse the attention weights of the last layer are taken over the nodes that
    are still to be visited, as if the others were removed from the instance:

    $$\\bar A_{ij} = \\frac{A_{ij} m_j}{\\sum_l A_{il} m_l}$$

    Arguments are those of :class:`AttentionModelEncoder`, with at least one layer.
    """

    def __init__(self, embed_dim: int = 128, num_layers: int = 3, **kwargs: Any) -> None:
        check_at_least(1, num_layers=num_layers)
        super().__init__(embed_dim, num_layers=num_layers, **kwargs)

    def encode(self, td: Mapping[str, Tensor]) -> tuple[MDAMHidden, Tensor]:
        """What the decoders start from, and the initial node embeddings `[B, N, D]`."""
        init_embeds = h = self.init_embedding(td)
        assert isinstance(self.net, GraphAttentionNetwork)
        *layers, last = self.net.layers
        for layer in layers:
            h = layer(h)
        return MDAMHidden(nodes=last(h), below=h, last_layer=last), init_embeds
