"""Weights of the original Attention Model code (wouterkool/attention-learn-to-route)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from torch import Tensor

from rl4co.core.errors import FileFormatError, UnknownNameError
from rl4co.models.original_weights.files import fill, heads_in, heads_out, read_state_dict
from rl4co.models.zoo.am.policy import AttentionModelPolicy

#: Environments for which original weights were published.
PROBLEMS = ("tsp", "cvrp", "sdvrp", "op", "pctsp", "spctsp")


def load_original_weights(
    source: str | Path | Mapping[str, Tensor], problem: str
) -> AttentionModelPolicy:
    """A policy with the weights of the original code, in evaluation mode.

    Its greedy solutions are the original ones, instance by instance. The original environments
    compare loads and prizes in plain float32, though: to have rounding decide as it did there, set
    `capacity_tolerance=0` (CVRP, SDVRP) or `prize_tolerance=0` (PCTSP, SPCTSP) of ours.

    Paper: Kool et al. (2019), https://arxiv.org/abs/1803.08475

    Args:
        source: The original `.pt` file (opened with `weights_only=True`), an `.npz` file with the
            original keys, or a state dict.
        problem: Name of the environment the weights were trained on.
    """
    if problem not in PROBLEMS:
        raise UnknownNameError("problem with original Attention Model weights", problem, PROBLEMS)
    original = read_state_dict(source, "Attention Model")
    policy = AttentionModelPolicy(env_name=problem, attention_bias=False)
    try:
        converted = convert_attention_model(original)
    except KeyError as error:
        raise FileFormatError(
            f"expected original Attention Model weights for {problem} with key {error}, got keys "
            f"{', '.join(sorted(original)[:6])} ..."
        ) from error
    return fill(policy, {key: value.float() for key, value in converted.items()}, problem)


def convert_attention_model(original: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Original values under the names of the policy."""
    out = {}
    layers = {key.split(".")[2] for key in original if key.startswith("embedder.layers.")}
    for layer in sorted(layers):
        theirs, ours = f"embedder.layers.{layer}", f"encoder.net.layers.{layer}"
        out[f"{ours}.attention.Wqkv.weight"] = torch.cat(
            [heads_in(original[f"{theirs}.0.module.W_{part}"]) for part in ("query", "key", "val")]
        )
        out[f"{ours}.attention.out_proj.weight"] = heads_out(original[f"{theirs}.0.module.W_out"])
        for module, index in (("expand", 0), ("contract", 2)):
            for part in ("weight", "bias"):
                out[f"{ours}.feedforward.{module}.{part}"] = original[
                    f"{theirs}.2.module.{index}.{part}"
                ]
        for module, index in (("norm_attention", 1), ("norm_feedforward", 3)):
            for part in ("weight", "bias", "running_mean", "running_var"):
                out[f"{ours}.{module}.{part}"] = original[f"{theirs}.{index}.normalizer.{part}"]
    for theirs, ours in _RENAMED.items():
        if theirs in original:
            out[ours] = original[theirs]
    return out


_RENAMED = {
    "init_embed.weight": "encoder.init_embedding.init_embed.weight",
    "init_embed.bias": "encoder.init_embedding.init_embed.bias",
    "init_embed_depot.weight": "encoder.init_embedding.init_embed_depot.weight",
    "init_embed_depot.bias": "encoder.init_embedding.init_embed_depot.bias",
    "project_node_embeddings.weight": "decoder.project_node_embeddings.weight",
    "project_fixed_context.weight": "decoder.project_fixed_context.weight",
    "project_step_context.weight": "decoder.context_embedding.project_context.weight",
    "project_out.weight": "decoder.pointer.project_out.weight",
    "project_node_step.weight": "decoder.dynamic_embedding.projection.weight",
    "W_placeholder": "decoder.context_embedding.W_placeholder",
}
