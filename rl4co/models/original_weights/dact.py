"""Weights of the original DACT code (yining043/VRP-DACT)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl4co.models.nn.scores import ScoreFn
from rl4co.models.original_weights.files import heads_in, heads_out
from rl4co.models.original_weights.renaming import (
    Renaming,
    count_layers,
    critic_layers,
    critic_sizes,
    fill_policy,
    linear,
    read_original,
    require,
    three_layers,
)
from rl4co.models.zoo.dact.policy import DACTPolicy

#: Original names of the critic's encoder layer, and of the MLP after it.
_CRITIC = ("encoder.0", "MLP")


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
    actor, critic = read_original(source, "DACT")
    query = require(actor, "encoder.0.MHA_sublayer.MHA.W_query_node", "DACT")
    feedforward = require(actor, "encoder.0.FFandNorm_sublayer.FF1.0.weight", "DACT")
    policy = DACTPolicy(
        critic=critic is not None,
        critic_kwargs=critic and {**critic_sizes(critic, *_CRITIC, "DACT"), "score": score},
        embed_dim=query.shape[1],
        num_heads=query.shape[0],
        num_encoder_layers=count_layers(actor),
        feedforward_hidden=feedforward.shape[0],
        score=score,
    )
    parts = {"": (actor, _actor(count_layers(actor)))}
    if critic is not None:
        renaming = critic_layers(*_CRITIC, bias=False, dropout=True)
        parts["critic."] = (critic, renaming)
    return fill_policy(policy, "DACT", parts)


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
