"""Weights of the original NeuOpt code (yining043/NeuOpt)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl4co.envs.routing.tsp_kopt.env import TSPkoptEnv
from rl4co.models.original_weights.renaming import (
    Renaming,
    linear,
    load_policy,
    same,
    synthesis_layers,
)
from rl4co.models.zoo.neuopt.policy import NeuOptPolicy


def load_original_weights(source: str | Path | Mapping[str, Any], k_max: int = 4) -> NeuOptPolicy:
    """A policy with the weights of the original code for the TSP, in evaluation mode.

    Args:
        source: An original `.pt` checkpoint (opened with `weights_only=True`), an `.npz` file or a
            state dict with the original keys behind `actor.` and, if its critic is wanted, behind
            `critic.`.
        k_max: Cuts of a move in the policy's own environment; the weights do not depend on it.
    """
    TSPkoptEnv(k_max=k_max)  # rejects impossible numbers
    return load_policy(
        NeuOptPolicy,
        "NeuOpt",
        source,
        _actor,
        decoder="decoder.linear_K1.weight",
        critic_names=("encoder", "reward_MLP"),
        env_params={"k_max": k_max},
    )


def _actor(num_layers: int) -> Renaming:
    streams = "decoder.streams"
    renaming: dict[str, Any] = {
        **linear("encoder.init_embedding.network.0", "embedder.embedder.0"),
        **linear("encoder.init_embedding.network.2", "embedder.embedder.2"),
        **synthesis_layers(num_layers),
        **linear(f"{streams}.start", "decoder.init_hidden_W"),
        f"{streams}.first_input": ("decoder.init_query_learnable", same),
        f"{streams}.move_weight": ("decoder.linear_V1", same),
        f"{streams}.edge_weight": ("decoder.linear_V2", same),
    }
    for number in (1, 2, 3, 4):
        renaming[f"{streams}.keys.weight#{number}"] = (f"decoder.linear_K{number}.weight", same)
    for name, numbers in (("move", (1, 3)), ("edge", (2, 4))):
        for number in numbers:
            renaming[f"{streams}.{name}_queries.weight#{number}"] = (
                f"decoder.linear_Q{number}.weight",
                same,
            )
    for ours, number in (("move_gru", 1), ("edge_gru", 2)):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            renaming[f"{streams}.{ours}.{name}"] = (f"decoder.rnn{number}.{name}", same)
    return renaming
