"""Weights of the original graph networks of DeepACO and GFACS, in the library's names."""

from __future__ import annotations

import re

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from rl4co.core.errors import FileFormatError, UnknownNameError
from rl4co.models.original_weights.files import Weights, read_state_dict

#: Original modules of the layers → ours.
_LAYERS = {
    "v_lins1": "own",
    "v_lins2": "message",
    "v_lins3": "origin",
    "v_lins4": "destination",
    "e_lins0": "edge",
    "v_bns": "norm_nodes",
    "e_bns": "norm_edges",
}
_LAYER_KEY = re.compile(r"emb_net\.(\w+)\.(\d+)\.(?:module\.)?(\w+)")
_HEAD_KEY = re.compile(r"par_net_heu\.lins\.(\d+)\.(\w+)")
#: Parts that are not used, or not there in evaluation.
_UNUSED = re.compile(r"par_net_phe\.|.*_dummy$")


def read_edge_gnn(
    source: str | Path | Mapping[str, Any], problem: str, problems: Collection[str]
) -> Weights:
    """Original weights under the names of a policy with an :class:`EdgeGNN`.

    Args:
        source: File or state dict, see :func:`read_state_dict`.
        problem: Name of the environment.
        problems: Environments with original weights.
    """
    if problem not in problems:
        raise UnknownNameError("problem with original weights", problem, problems)
    return convert_weights(read_state_dict(source, "DeepACO or GFACS"))


def convert_weights(original: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Original values under the names of a policy with an :class:`EdgeGNN`."""
    converted: dict[str, Tensor] = {}
    for key, value in original.items():
        if _UNUSED.match(key):
            continue
        head, layer = _HEAD_KEY.fullmatch(key), _LAYER_KEY.fullmatch(key)
        if head:
            name = f"encoder.head.layers.{head[1]}.{head[2]}"
        elif layer and layer[1] in _LAYERS:
            name = f"encoder.net.layers.{layer[2]}.{_LAYERS[layer[1]]}.{layer[3]}"
        else:
            name = key.replace("emb_net.v_lin0", "encoder.edge_embedding.node_embed")
            name = name.replace("emb_net.e_lin0", "encoder.edge_embedding.edge_embed")
            name = name.replace("Z_net.", "log_partition.net.")
        converted[name] = value
    return converted


def count_layers(weights: Mapping[str, Tensor]) -> tuple[int, int, int]:
    """Embedding size, layers of the network and layers of the head."""
    try:
        size = weights["encoder.edge_embedding.edge_embed.bias"].shape[0]
    except KeyError:
        raise FileFormatError(
            f"expected original weights of DeepACO or GFACS, got keys {sorted(weights)[:4]} ..."
        ) from None
    layers = {key.split(".")[3] for key in weights if key.startswith("encoder.net.layers.")}
    head = {key.split(".")[3] for key in weights if key.startswith("encoder.head.layers.")}
    return size, len(layers), len(head)
