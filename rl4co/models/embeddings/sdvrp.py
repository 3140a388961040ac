"""SDVRP embeddings: those of the CVRP, and keys and values that follow the remaining demands."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import EmbeddingConfig, EnvEmbeddings, LinearDynamicEmbedding
from rl4co.models.embeddings.cvrp import CVRPContext, CVRPInitEmbedding


class SDVRPDynamicEmbedding(LinearDynamicEmbedding):
    """Keys and values change with each node's remaining demand, 0 for the depot."""

    state_keys = ("remaining_demand", "vehicle_capacity")

    def features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Remaining demand as a share of the vehicle."""
        return state["remaining_demand"] / state["vehicle_capacity"]


@EMBEDDINGS.register("sdvrp")
def sdvrp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init, context and dynamic embeddings of the SDVRP."""
    return EnvEmbeddings(
        init=CVRPInitEmbedding(config.embed_dim, config.linear_bias),
        context=CVRPContext(config.embed_dim),
        dynamic=SDVRPDynamicEmbedding(config.embed_dim),
    )
