"""Weights of the original POMO code (yd-kwon/POMO), and what codes built on it share."""

from __future__ import annotations

import re

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from torch import Tensor

from rl4co.core.errors import FileFormatError, UnknownNameError
from rl4co.models.original_weights.files import Weights, fill, read_state_dict
from rl4co.models.zoo.am.policy import AttentionModelPolicy

#: Problems with original weights.
PROBLEMS = ("tsp", "cvrp")

#: Spellings of the same parts in the codes built on POMO.
_SPELLINGS = (
    (r"add(?:AndNormalization|_n_normalization_)([12])\.norm(?:_by_EMB)?\.", r"norm_\1."),
    (r"(?:feedForward|feed_forward)\.", "feedforward."),
)
#: Parts of an encoder layer: ours → original.
LAYER_PARTS = {
    "norm_attention": "norm_1",
    "norm_feedforward": "norm_2",
    "feedforward.expand": "feedforward.W1",
    "feedforward.contract": "feedforward.W2",
}


def load_original_weights(
    source: str | Path | Mapping[str, Any], problem: str, num_heads: int = 8
) -> AttentionModelPolicy:
    """A policy with the weights of the original code, in evaluation mode.

    The original code has no separate first step for the TSP, since all solutions have forced
    starts; the placeholder of that step is zero here. Decode with multi-start.

    Paper: Kwon et al. (2020), https://arxiv.org/abs/2010.16011

    Args:
        source: The original `.pt` file (opened with `weights_only=True`), an `.npz` file with the
            original keys, or a state dict.
        problem: "tsp" or "cvrp".
        num_heads: Attention heads, which the weights do not tell.
    """
    if problem not in PROBLEMS:
        raise UnknownNameError("problem with original POMO weights", problem, PROBLEMS)
    original = read_pomo(source, "POMO")
    policy = AttentionModelPolicy(env_name=problem, num_heads=num_heads, **pomo_sizes(original))
    converted = convert_encoder(original) | convert_decoder(original)
    if "encoder.embedding.weight" in original:  # nodes of one kind, without a depot
        converted |= convert_linear(original, "encoder.embedding", _INIT)
        first, last = (original[f"decoder.Wq_{name}.weight"] for name in ("first", "last"))
        converted[f"{CONTEXT}.project_context.weight"] = torch.cat([first, last], 1)
        converted[f"{CONTEXT}.W_placeholder"] = first.new_zeros(2 * len(first))
    else:
        converted |= convert_depot(original)
        converted[f"{CONTEXT}.project_context.weight"] = original["decoder.Wq_last.weight"]
    return fill(policy, converted, problem)


_INIT = "encoder.init_embedding.init_embed"
CONTEXT = "decoder.context_embedding"


class _Named(dict[str, Tensor]):
    """Weights by name; a missing name raises `FileFormatError`."""

    def __init__(self, weights: Weights, method: str) -> None:
        super().__init__(weights)
        self.method = method

    def __missing__(self, key: str) -> Tensor:
        raise FileFormatError(
            f"expected original {self.method} weights with the key {key!r}, got "
            f"{', '.join(sorted(self)[:4])} ...; is it a file for another problem or method?"
        )


def read_pomo(source: str | Path | Mapping[str, Any], method: str) -> Weights:
    """Original weights, with one spelling of each key; see :func:`read_state_dict`."""
    renamed = {}
    for key, value in read_state_dict(source, method).items():
        for pattern, spelling in _SPELLINGS:
            key = re.sub(pattern, spelling, key)
        renamed[key] = value.float()
    return _Named(renamed, method)


def pomo_sizes(original: Weights) -> dict[str, Any]:
    """Arguments of the Attention Model's policy that fit weights of POMO."""
    layer = "encoder.layers.0"
    hidden = original.get(f"{layer}.feedforward.W1.bias")  # None: experts
    return {
        "embed_dim": original[f"{layer}.Wq.weight"].shape[1],
        "num_encoder_layers": count_layers(original),
        "normalization": "batch" if f"{layer}.norm_1.running_mean" in original else "instance",
        "use_graph_context": False,
        "out_bias_pointer_attn": True,
        **({} if hidden is None else {"feedforward_hidden": len(hidden)}),
    }


def count_layers(original: Weights, prefix: str = "encoder.layers.") -> int:
    """Encoder layers."""
    return len(
        {key.removeprefix(prefix).split(".")[0] for key in original if key.startswith(prefix)}
    )


def convert_encoder(original: Weights) -> Weights:
    """Encoder layers under our names; experts in place of feed-forward layers are left out."""
    converted: Weights = {}
    for index in range(count_layers(original)):
        theirs, ours = f"encoder.layers.{index}", f"encoder.net.layers.{index}"
        inputs = torch.cat([original[f"{theirs}.W{part}.weight"] for part in "qkv"])
        converted[f"{ours}.attention.Wqkv.weight"] = inputs
        # The original projections of queries, keys and values have no bias, that of the output has.
        converted[f"{ours}.attention.Wqkv.bias"] = inputs.new_zeros(len(inputs))
        parts = {"attention.out_proj": "multi_head_combine", **LAYER_PARTS}
        for name, part in parts.items():
            converted |= convert_linear(original, f"{theirs}.{part}", f"{ours}.{name}")
    return converted


def convert_depot(original: Weights) -> Weights:
    """Embeddings of depot and customers."""
    return convert_linear(original, "encoder.embedding_depot", f"{_INIT}_depot") | convert_linear(
        original, "encoder.embedding_node", _INIT
    )


def convert_decoder(original: Weights, decoder: str = "decoder", ours: str = "decoder") -> Weights:
    """Keys, values and the pointer of a decoder; the logit keys are the embeddings themselves."""
    key, value = original[f"{decoder}.Wk.weight"], original[f"{decoder}.Wv.weight"]
    converted = {
        f"{ours}.project_node_embeddings.weight": torch.cat([key, value, torch.eye(len(key))])
    }
    combine = f"{decoder}.multi_head_combine"
    if f"{combine}.weight" in original:  # else: experts
        converted |= convert_linear(original, combine, f"{ours}.pointer.project_out")
    return converted


def convert_linear(original: Weights, theirs: str, ours: str) -> Weights:
    """All weights of a layer under another prefix."""
    return {
        f"{ours}.{key.removeprefix(f'{theirs}.')}": value
        for key, value in original.items()
        if key.startswith(f"{theirs}.")
    }
