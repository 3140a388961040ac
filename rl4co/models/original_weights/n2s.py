"""Weights of the original N2S code (yining043/PDP-N2S)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl4co.models.original_weights.files import heads_in
from rl4co.models.original_weights.renaming import (
    Renaming,
    linear,
    load_policy,
    synthesis_layers,
    three_layers,
)
from rl4co.models.zoo.n2s.policy import N2SPolicy


def load_original_weights(source: str | Path | Mapping[str, Any]) -> N2SPolicy:
    """A policy with the weights of the original code, in evaluation mode.

    Args:
        source: An original `.pt` checkpoint (opened with `weights_only=True`), an `.npz` file or a
            state dict with the original keys behind `actor.` and, if its critic is wanted, behind
            `critic.`.
    """
    return load_policy(
        N2SPolicy,
        "N2S",
        source,
        _actor,
        decoder="decoder.compater_removal.W_Q",
        critic_names=("encoder.0", "MLP"),
    )


def _actor(num_layers: int) -> Renaming:
    removal, reinsertion = "decoder.compater_removal", "decoder.compater_reinsertion"
    renaming: dict[str, Any] = {
        **linear("encoder.init_embedding.linear", "embedder.embedder", bias=False),
        **synthesis_layers(num_layers),
        **linear("decoder.pooling.project_node", "decoder.project_node", bias=False),
        **linear("decoder.pooling.project_graph", "decoder.project_graph", bias=False),
        "decoder.removal.query.weight": (f"{removal}.W_Q", heads_in),
        "decoder.removal.key.weight": (f"{removal}.W_K", heads_in),
        **three_layers("decoder.removal.network", f"{removal}.agg", dropout=False),
        **three_layers("decoder.reinsertion.network", f"{reinsertion}.agg", dropout=False),
    }
    for ours, number in (("in_front", 1), ("behind", 2)):
        for name in ("query", "key"):
            renaming[f"decoder.reinsertion.{ours}.{name}.weight"] = (
                f"{reinsertion}.compater_insert{number}.W_{name}",
                heads_in,
            )
    return renaming
