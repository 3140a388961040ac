"""Weights of the original DACT code (yining043/VRP-DACT)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl4co.models.nn.scores import ScoreFn
from rl4co.models.original_weights.files import heads_in, heads_out
from rl4co.models.original_weights.renaming import Renaming, linear, load_policy, three_layers
from rl4co.models.zoo.dact.policy import DACTPolicy


def load_original_weights(
    source: str | Path | Mapping[str, Any], score: str | ScoreFn = "dot"
) -> DACTPolicy:
    """A policy with the weights of the original code, in evaluation mode.

    Args:
        source: An original `.pt` checkpoint (opened with `weights_only=True`), an `.npz` file or a
            state dict with the original keys behind `actor.` and, if its critic is wanted, behind
            `critic.`.
        score: Compatibility that the weights were trained with, in policy and critic: "dot", or
            "cauchy".
    """
    return load_policy(
        DACTPolicy,
        "DACT",
        source,
        _actor,
        decoder="decoder.compater_node.W_query",
        critic_names=("encoder.0", "MLP"),
        critic_bias=False,
        query="encoder.0.MHA_sublayer.MHA.W_query_node",
        feedforward="encoder.0.FFandNorm_sublayer.FF1.0.weight",
        critic_kwargs={"score": score},
        score=score,
    )


def _actor(num_layers: int) -> Renaming:
    renaming: dict[str, Any] = dict(
        linear("encoder.init_embedding.linear", "embedder.embedder", bias=False)
    )
    for index in range(num_layers):
        ours, theirs = f"encoder.layers.{index}", f"encoder.{index}"
        for aspect, short in (("node", "node"), ("position", "pos")):
            attention = f"{theirs}.MHA_sublayer.MHA"
            for name, key in (("query", "W_query"), ("key", "W_key"), ("value", "W_val")):
                renaming[f"{ours}.attention.{aspect}_{name}.weight"] = (
                    f"{attention}.{key}_{short}",
                    heads_in,
                )
            renaming[f"{ours}.attention.{aspect}_out.weight"] = (
                f"{attention}.W_out_{short}",
                heads_out,
            )
        for aspect, number in (("node", 1), ("position", 2)):
            for layer in (0, 2):
                renaming |= linear(
                    f"{ours}.{aspect}_feedforward.{layer}",
                    f"{theirs}.FFandNorm_sublayer.FF{number}.{layer}",
                )
    for aspect, short in (("node", "node"), ("position", "pos")):
        for name, key in (("query", "W_query"), ("key", "W_key")):
            renaming[f"decoder.{aspect}_scores.{name}.weight"] = (
                f"decoder.compater_{short}.{key}",
                heads_in,
            )
        for name in ("node", "graph"):
            renaming |= linear(
                f"decoder.{aspect}_pooling.project_{name}",
                f"decoder.project_{name}_{short}",
                bias=False,
            )
    return renaming | dict(three_layers("decoder.network", "decoder.value_head", dropout=True))
