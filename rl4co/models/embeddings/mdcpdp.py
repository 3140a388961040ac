"""MDCPDP embeddings: those of the PDP for several depots; last node, depot and load as context."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor

from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import ContextEmbedding, EmbeddingConfig, EnvEmbeddings
from rl4co.models.embeddings.pdp import PDPInitEmbedding


class MDCPDPInitEmbedding(PDPInitEmbedding):
    """One linear map each for depots, pickups and deliveries: state → `[B, N, D]`."""

    problem = "mdcpdp"

    def num_depots(self, state: Mapping[str, Tensor]) -> int:
        """One for each vehicle."""
        return state["capacity"].shape[-1]


class MDCPDPContext(ContextEmbedding):
    """Query from the last node, the current depot and five numbers.

    $$q = W [h_{a_{t-1}}, h_{\\mathrm{depot}}, f_1, \\dots, f_5]$$

    The features are the room left in the vehicle, the orders on board, the lengths of the current
    and of the longest route, and the customers not visited yet as a share of all nodes.
    """

    state_keys = (
        "current_node",
        "current_depot",
        "current_capacity",
        "current_carry",
        "current_length",
        "longest_length",
        "num_unvisited",
        "action_mask",
    )

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, num_nodes=2, num_features=5)

    def nodes(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Last node and depot of the current vehicle."""
        return state["current_node"], state["current_depot"]

    def features(self, state: Mapping[str, Tensor]) -> Tensor:
        """The five numbers `[B, Q, 5]`."""
        carry, length = state["current_carry"], state["current_length"]
        room, unvisited = state["current_capacity"] - carry, state["num_unvisited"]
        return torch.cat(
            [
                room.to(length.dtype),
                carry.to(length.dtype),
                length,
                state["longest_length"],
                unvisited / state["action_mask"].shape[-1],
            ],
            -1,
        )


@EMBEDDINGS.register("mdcpdp")
def mdcpdp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the MDCPDP."""
    return EnvEmbeddings(
        init=MDCPDPInitEmbedding(config.embed_dim, config.linear_bias),
        context=MDCPDPContext(config.embed_dim),
    )
