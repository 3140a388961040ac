"""Weights of the original MatNet code (yd-kwon/MatNet)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rl4co.core.errors import UnknownNameError
from rl4co.models.original_weights.files import Weights, fill
from rl4co.models.original_weights.pomo import (
    CONTEXT,
    LAYER_PARTS,
    convert_decoder,
    convert_linear,
    count_layers,
    read_pomo,
)
from rl4co.models.zoo.matnet.multistage import MultiStageFFSPPolicy
from rl4co.models.zoo.matnet.policy import MatNetPolicy

#: Problems with original weights.
PROBLEMS = ("atsp", "ffsp")
_STAGES = "stage_models."


def load_original_weights(
    source: str | Path | Mapping[str, Any],
    problem: str,
    num_heads: int = 16,
    max_time: float = 9.0,
) -> MatNetPolicy | MultiStageFFSPPolicy:
    """A policy with the weights of the original code, in evaluation mode.

    The networks are the original ones. The original draws the one-hot vectors of columns at random
    in every pass, while they follow from the matrix here, so solutions differ as two passes of the
    original do. For the FFSP the original reads processing times as they are, while the policy here
    divides them by the largest one of the instance; the weights are multiplied by `max_time`.

    Paper: Kwon et al. (2021), https://arxiv.org/abs/2106.11113

    Args:
        source: The original `.pt` file (opened with `weights_only=True`), an `.npz` file with the
            original keys, or a state dict.
        problem: "atsp" or "ffsp".
        num_heads: Attention heads, which the weights do not tell.
        max_time: Largest processing time of the FFSP instances (9 in the original ones).
    """
    if problem not in PROBLEMS:
        raise UnknownNameError("problem with original MatNet weights", problem, PROBLEMS)
    original = read_pomo(source, "MatNet")
    stages = sorted({key.split(".")[1] for key in original if key.startswith(_STAGES)}, key=int)
    prefix = f"{_STAGES}0." if problem == "ffsp" else ""
    sizes: dict[str, Any] = {
        "embed_dim": original[f"{prefix}decoder.Wk.weight"].shape[1],
        "num_heads": num_heads,
        "num_encoder_layers": count_layers(original, f"{prefix}encoder.layers."),
        "feedforward_hidden": len(
            original[f"{prefix}encoder.layers.0.row_encoding_block.feedforward.W1.bias"]
        ),
        "bias": True,
        "out_bias_pointer_attn": True,
    }
    if problem == "atsp":
        converted = _encoder(original, "encoder", "encoder") | convert_decoder(original)
        # Roles: first node, current node.
        first, current = (original[f"decoder.Wq_{role}.weight"] for role in (1, 0))
        converted[f"{CONTEXT}.project_context.weight"] = torch.cat([first, current], 1)
        converted[f"{CONTEXT}.W_placeholder"] = first.new_zeros(2 * len(first))
        return fill(MatNetPolicy(**sizes), converted, problem)
    converted = {}
    for number in stages:
        theirs, ours = f"{_STAGES}{number}", f"decoder.stages.{number}"
        converted |= _encoder(original, f"{theirs}.encoder", f"encoder.stages.{number}", max_time)
        converted |= convert_decoder(original, f"{theirs}.decoder", ours)
        converted |= convert_linear(original, f"{theirs}.decoder.Wq_3", f"{ours}.project_query")
        converted[f"{ours}.no_job"] = original[f"{theirs}.decoder.encoded_NO_JOB"].flatten()
    return fill(MultiStageFFSPPolicy(len(stages), **sizes), converted, problem)


def _encoder(original: Weights, theirs: str, ours: str, scale: float = 1.0) -> Weights:
    """Encoder layers; matrix entries are in units of `scale`."""
    converted: Weights = {}
    for index in range(count_layers(original, f"{theirs}.layers.")):
        for side, name in (("rows", "row"), ("columns", "col")):
            block = f"{theirs}.layers.{index}.{name}_encoding_block"
            converted |= _block(original, block, f"{ours}.layers.{index}.{side}", scale)
    return converted


def _block(original: Weights, theirs: str, ours: str, scale: float) -> Weights:
    """One side of a layer."""
    query = original[f"{theirs}.Wq.weight"]
    pair = torch.cat([original[f"{theirs}.W{part}.weight"] for part in "kv"])
    mixer = f"{theirs}.mixed_score_MHA"
    first = original[f"{mixer}.mix1_weight"] * torch.tensor([1.0, scale]).view(1, 2, 1)  # [H, 2, M]
    parts = {
        "norm_cross": "norm_1",
        **{name: part for name, part in LAYER_PARTS.items() if name != "norm_attention"},
    }
    converted = {
        # The original projections of queries, keys and values have no bias.
        f"{ours}.cross.Wq.weight": query,
        f"{ours}.cross.Wq.bias": query.new_zeros(len(query)),
        f"{ours}.cross.Wkv.weight": pair,
        f"{ours}.cross.Wkv.bias": pair.new_zeros(len(pair)),
        # A bias of the second layer is the same for all columns, so the softmax cancels it.
        f"{ours}.cross.mix_first": first.permute(2, 1, 0)[..., None, None],  # [M, 2, H, 1, 1]
        f"{ours}.cross.mix_bias": original[f"{mixer}.mix1_bias"].t()[..., None, None],
        f"{ours}.cross.mix_second": original[f"{mixer}.mix2_weight"].mT.movedim(-1, 0)[..., None],
        **convert_linear(original, f"{theirs}.multi_head_combine", f"{ours}.cross.out_proj"),
    }
    for name, part in parts.items():
        converted |= convert_linear(original, f"{theirs}.{part}", f"{ours}.{name}")
    return converted
