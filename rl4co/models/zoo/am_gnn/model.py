"""Attention Model with a graph network as encoder, trained with REINFORCE."""

from __future__ import annotations

from rl4co.core.registry import MODELS
from rl4co.models.zoo.am import AttentionModel
from rl4co.models.zoo.am_gnn.policy import GNNAttentionModelPolicy


@MODELS.register("am_gnn")
class GNNAttentionModel(AttentionModel):
    """Attention Model with an encoder on the graph of the instance, with REINFORCE.

    Arguments are those of :class:`AttentionModel`; `policy_kwargs={"network": "gcn"}` chooses the
    network.
    """

    policy_class = GNNAttentionModelPolicy
    supported_envs = ("flp", "mcp")
    support_reason = "its encoder needs the graph of an instance"
