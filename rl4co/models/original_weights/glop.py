"""Weights of the original GLOP code (henry-yeh/GLOP): revisers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl4co.core.errors import ConfigError, FileFormatError
from rl4co.models.original_weights.am import convert_attention_model
from rl4co.models.original_weights.files import fill, read_state_dict
from rl4co.models.zoo.am import AttentionModelPolicy
from rl4co.models.zoo.glop.reviser import DestinationContext, make_reviser_policy


def load_original_weights(
    source: str | Path | Mapping[str, Any], destination: bool = False
) -> AttentionModelPolicy:
    """A reviser with the weights of the original code, in evaluation mode.

    Args:
        source: An `.npz` file with the original keys, the original `.pt` file, or a state dict.
        destination: Whether the context has the destination of the path in place of the first node
            of the piece, which is not what the weights were trained for.
    """
    original = read_state_dict(source, "GLOP")
    try:
        embed_dim = original["init_embed.bias"].shape[0]
        heads, _, size = original["embedder.layers.0.0.module.W_query"].shape
        hidden = original["embedder.layers.0.2.module.0.bias"].shape[0]
        layers = len({key.split(".")[2] for key in original if key.startswith("embedder.layers.")})
        converted = convert_attention_model(original)
    except KeyError as error:
        raise FileFormatError(
            f"expected original weights of a GLOP reviser with key {error}, got keys "
            f"{', '.join(sorted(original)[:4])} ..."
        ) from None
    if heads * size != embed_dim:
        raise ConfigError(f"expected heads of {embed_dim // heads} dimensions, got {size}")
    policy = make_reviser_policy(
        embed_dim, layers, heads, hidden, destination=False, attention_bias=False
    )
    if destination:
        policy.decoder.context_embedding = DestinationContext(embed_dim)
    return fill(policy, converted, "revisers")
