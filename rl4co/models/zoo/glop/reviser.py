"""Revisers: Attention Models for pieces of tours, and weights of the original code.

Original code: henry-yeh/GLOP.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError, FileFormatError
from rl4co.models.embeddings.tsp import TSPContext, TSPInitEmbedding
from rl4co.models.policies.original_edge_gnn import load_into, read_weights
from rl4co.models.zoo.am import AttentionModelPolicy


class OriginalContext(TSPContext):
    """Query from the piece's first node, in both directions, and the current one.

    So going forwards the original revisers do not see where the path has to end.
    """

    state_keys = ("anchor", "current_node", "i")

    def nodes(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """First node of the piece, and current node."""
        return state["anchor"], state["current_node"]


class DestinationContext(TSPContext):
    """Query from the node where the path has to end, and the current one."""

    state_keys = ("last_node", "current_node", "i")

    def nodes(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Last node and current node."""
        return state["last_node"], state["current_node"]


def make_reviser_policy(
    embed_dim: int = 128,
    num_encoder_layers: int = 6,
    num_heads: int = 8,
    feedforward_hidden: int = 512,
    destination: bool = True,
    **kwargs: Any,
) -> AttentionModelPolicy:
    """An Attention Model for the SHPP.

    Args:
        embed_dim: Embedding size.
        num_encoder_layers: Layers of the encoder.
        num_heads: Attention heads.
        feedforward_hidden: Hidden units of the feed-forward layers.
        destination: Whether marks on both ends and a context with the destination are used, the
            library's own embeddings; otherwise the original ones.
        kwargs: Further arguments of the policy.
    """
    parts: dict[str, Any] = {}
    if not destination:
        parts = {
            "init_embedding": TSPInitEmbedding(embed_dim),
            "context_embedding": OriginalContext(embed_dim),
        }
    return AttentionModelPolicy(
        env_name="shpp",
        embed_dim=embed_dim,
        num_encoder_layers=num_encoder_layers,
        num_heads=num_heads,
        feedforward_hidden=feedforward_hidden,
        **parts,
        **kwargs,
    )


def load_original_weights(
    source: str | Path | Mapping[str, Any], destination: bool = False
) -> AttentionModelPolicy:
    """A reviser with the weights of the original code, in evaluation mode.

    Args:
        source: An `.npz` file with the original keys, the original `.pt` file, or a state dict.
        destination: Whether the context has the destination of the path in place of the first node
            of the piece, which is not what the weights were trained for.
    """
    original = read_weights(source, "shpp", ("shpp",))
    try:
        embed_dim = original["init_embed.bias"].shape[0]
        heads, _, size = original["embedder.layers.0.0.module.W_query"].shape
        hidden = original["embedder.layers.0.2.module.0.bias"].shape[0]
        layers = len({key.split(".")[2] for key in original if key.startswith("embedder.layers.")})
        converted = _convert(original, layers)
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
    counters = {k: v for k, v in policy.state_dict().items() if k.endswith("batches_tracked")}
    load_into(policy, {**converted, **counters}, "revisers")
    return policy.eval()


#: Original name → ours, outside of the layers.
_NAMES = {
    "init_embed.weight": "encoder.init_embedding.init_embed.weight",
    "init_embed.bias": "encoder.init_embedding.init_embed.bias",
    "project_node_embeddings.weight": "decoder.project_node_embeddings.weight",
    "project_fixed_context.weight": "decoder.project_fixed_context.weight",
    "project_step_context.weight": "decoder.context_embedding.project_context.weight",
    "project_out.weight": "decoder.pointer.project_out.weight",
    "W_placeholder": "decoder.context_embedding.W_placeholder",
}
#: Original sub-module of a layer → ours.
_PARTS = {
    "1.normalizer": "norm_attention",
    "3.normalizer": "norm_feedforward",
    "2.module.0": "feedforward.expand",
    "2.module.2": "feedforward.contract",
}


def _convert(original: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Original values under the names of the policy."""
    found = {ours: original[theirs] for theirs, ours in _NAMES.items()}
    for layer in range(layers):
        theirs, ours = f"embedder.layers.{layer}", f"encoder.net.layers.{layer}"
        inputs = [original[f"{theirs}.0.module.W_{name}"] for name in ("query", "key", "val")]
        found[f"{ours}.attention.Wqkv.weight"] = torch.cat(
            [weight.transpose(1, 2).flatten(0, 1) for weight in inputs]  # [H * d, D] each
        )
        out = original[f"{theirs}.0.module.W_out"]  # [H, d, D]
        found[f"{ours}.attention.out_proj.weight"] = out.flatten(0, 1).t().contiguous()
        for part, name in _PARTS.items():
            for key, value in original.items():
                prefix, _, kind = key.rpartition(".")
                if prefix == f"{theirs}.{part}" and kind != "num_batches_tracked":
                    found[f"{ours}.{name}.{kind}"] = value
    return found
