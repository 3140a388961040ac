"""Weights of the original MTPOMO and MVMoE codes (FeiLiu36/MTNCO, RoyalSkye/Routing-MVMoE)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from torch import Tensor

from rl4co.core.errors import UnsupportedError
from rl4co.models.original_weights.files import Weights, fill
from rl4co.models.original_weights.pomo import (
    CONTEXT,
    convert_decoder,
    convert_depot,
    convert_encoder,
    count_layers,
    pomo_sizes,
    read_pomo,
)
from rl4co.models.zoo.am.policy import AttentionModelPolicy

_INIT = "encoder.init_embedding.init_embed.weight"
_DECODER_GATE = "decoder.multi_head_combine.w_gate"


def load_original_weights(
    source: str | Path | Mapping[str, Any],
    num_heads: int = 8,
    experts_per_node: int = 2,
    remaining_length: bool = False,
) -> AttentionModelPolicy:
    """A policy for `mtvrp` with the weights of the original code, in evaluation mode.

    The networks are the original ones. Their inputs are those of the original for linehauls,
    capacity, open routes and time windows; in the original, time and length of the route stay zero
    (MTPOMO: 3 units of length left) on instances without windows or limit, the customers' service
    time is not an input, and backhauls have negative demands and refill the vehicle.

    Papers: Liu et al. (2024), https://arxiv.org/abs/2402.16891; Zhou et al. (2024),
    https://arxiv.org/abs/2405.01029

    Args:
        source: The original `.pt` file (opened with `weights_only=True`), an `.npz` file with the
            original keys, or a state dict.
        num_heads: Attention heads, which the weights do not tell.
        experts_per_node: Experts that each node uses, which the weights do not tell either.
        remaining_length: Whether the third feature of the context is the length that is left, as in
            MTPOMO, and not that of the route so far, as in MVMoE.
    """
    original = read_pomo(source, "MTPOMO or MVMoE")
    if "decoder.dense_or_moe.weight" in original:
        raise UnsupportedError(
            "expected weights of MTPOMO or MVMoE without hierarchical gating, got MVMoE's light "
            "version; its gate reads the heads of the second step, averaged over a batch, and "
            "draws at random in every step, which this library does not do"
        )
    experts = _expert_settings(original, experts_per_node)
    sizes = pomo_sizes(original)
    if "encoder" in experts:
        hidden = original["encoder.layers.0.feedforward.experts.0.fc1.bias"]
        sizes["feedforward_hidden"] = len(hidden)
    policy = AttentionModelPolicy(
        env_name="mtvrp", num_heads=num_heads, moe_kwargs=experts or None, **sizes
    )
    converted = convert_encoder(original) | convert_depot(original) | convert_decoder(original)
    converted |= _convert_experts(original, experts)
    # Original features of a customer: x, y, demand, opening, closing.
    location, demand, window = converted[_INIT].split([2, 1, 2], 1)
    converted[_INIT] = torch.cat(
        [location, demand, -demand, window, torch.zeros_like(demand)], 1
    )  # x, y, linehaul, backhaul, opening, closing, service
    # Original features of the context: load, time, length, whether the route is open.
    node, *features = original["decoder.Wq_last.weight"].split([sizes["embed_dim"], 1, 1, 1, 1], 1)
    load, time, length, is_open = features
    none = torch.zeros_like(load)
    so_far, left = (none, length) if remaining_length else (length, none)
    converted[f"{CONTEXT}.project_context.weight"] = torch.cat(
        [node, load, none, time, so_far, is_open, left], 1
    )
    return fill(policy, converted, "mtvrp")


def _expert_settings(original: Weights, k: int) -> dict[str, dict[str, Any]]:
    """Experts of the parts that have some."""
    gates = {"encoder": "encoder.layers.0.feedforward.w_gate", "decoder": _DECODER_GATE}
    return {
        part: {"num_experts": original[gate].shape[1], "k": k}
        for part, gate in gates.items()
        if gate in original
    }


def _convert_experts(original: Weights, experts: Mapping[str, Any]) -> Weights:
    """Gates and experts; each tensor holds all experts of a layer."""
    converted: Weights = {}
    if "encoder" in experts:
        for index in range(count_layers(original)):
            converted |= _mixture(
                original,
                f"encoder.layers.{index}.feedforward",
                f"encoder.net.layers.{index}.feedforward",
                (".fc1", ".fc2"),
            )
    if "decoder" in experts:
        converted |= _mixture(original, "decoder.multi_head_combine", "decoder.experts", ("",))
    return converted


def _mixture(original: Weights, theirs: str, ours: str, layers: tuple[str, ...]) -> Weights:
    num_experts = original[f"{theirs}.w_gate"].shape[1]

    def stacked(name: str) -> Tensor:
        return torch.stack([original[f"{theirs}.experts.{e}{name}"] for e in range(num_experts)])

    converted = {f"{ours}.gate.{name}": original[f"{theirs}.{name}"].t() for name in _GATE}
    for number, layer in enumerate(layers):
        converted[f"{ours}.weights.{number}"] = stacked(f"{layer}.weight").transpose(1, 2)
        converted[f"{ours}.biases.{number}"] = stacked(f"{layer}.bias")
    return converted


_GATE = ("w_gate", "w_noise")
