"""Policy of ReLD: the Attention Model with a decoder that holds on sizes it was not trained on.

Paper: Huang et al., 2025, https://openreview.net/forum?id=4pRwkYpa2u. Original code:
ziweileonhuang/reld-nco.
"""

from __future__ import annotations

from typing import Any

from rl4co.models.zoo.am import AttentionModelPolicy


class ReLDPolicy(AttentionModelPolicy):
    """Attention Model with the refined glimpse and the distance bias of ReLD.

    The encoder has no normalisation, whose statistics would depend on the number of nodes. See
    :class:`~rl4co.models.zoo.am.RefinedDecoder` for the decoder.

    Args:
        env_name: Environment, one with coordinates or a cost matrix.
        num_encoder_layers: Encoder blocks.
        normalization: "batch", "instance", "layer" or None.
        use_graph_context: Whether the mean node embedding enters the query.
        tanh_clipping: Bound of the tanh clipping of logits.
        refinement_hidden: Width of the decoder's feed-forward layer; None: no refinement.
        distance_bias: Whether the logarithms of the distances are subtracted from the logits.
        kwargs: See :class:`AttentionModelPolicy`.
    """

    def __init__(
        self,
        env_name: str = "cvrp",
        num_encoder_layers: int = 6,
        normalization: str | None = None,
        use_graph_context: bool = False,
        tanh_clipping: float = 50.0,
        refinement_hidden: int | None = 512,
        distance_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            env_name=env_name,
            num_encoder_layers=num_encoder_layers,
            normalization=normalization,
            use_graph_context=use_graph_context,
            tanh_clipping=tanh_clipping,
            refinement_hidden=refinement_hidden,
            distance_bias=distance_bias,
            **kwargs,
        )
