"""Variants of the multi-task VRP: names, features, and random draws.

A variant is a subset of the features O (open routes), TW (time windows), L (distance limit) and B
(backhauls) on top of capacities. Its number has one bit for each feature, in the order of
:data:`FEATURES`, so that the sixteen variants are the numbers 0 ... 15.
"""

from __future__ import annotations

import math

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor

FEATURES = ("O", "TW", "L", "B")

#: The variants in the order of the paper's table.
VARIANTS = (
    "cvrp", "ovrp", "vrpb", "vrpl", "vrptw", "ovrptw", "ovrpb", "ovrpl",
    "vrpbl", "vrpbtw", "vrpltw", "ovrpbl", "ovrpbtw", "ovrpltw", "vrpbltw", "ovrpbltw",
)  # fmt: skip

#: Presets in which an instance has one feature at most; OTW is the pair O and TW.
EXCLUSIVE_PRESETS = ("single_feat", "single_feat_otw")

#: Weight of the plain CVRP among exclusive features.
PLAIN_WEIGHT = 0.5


def _split_features(variant: str) -> dict[str, float]:
    """Feature → 1.0 if the variant has it, else 0.0."""
    prefix, _, suffix = variant.partition("vrp")
    has = {"O": prefix == "o", "TW": "tw" in suffix, "L": "l" in suffix, "B": "b" in suffix}
    return {feature: float(has[feature]) for feature in FEATURES}


#: Preset → probability of each feature: `all` (Berto et al., 2024) draws every variant equally
#: often, `single_feat` those with one feature at most (Liu et al., 2024), `single_feat_otw` OVRPTW
#: as well (Zhou et al., 2024).
VARIANT_GENERATION_PRESETS: dict[str, dict[str, float]] = {
    "all": dict.fromkeys(FEATURES, 0.5),
    "single_feat": dict.fromkeys(FEATURES, 0.5),
    "single_feat_otw": dict.fromkeys((*FEATURES, "OTW"), 0.5),
    **{variant: _split_features(variant) for variant in VARIANTS},
}


def variant_weights(probabilities: Mapping[str, float], exclusive: bool = False) -> list[float]:
    """Weights of the sixteen variants, by their numbers.

    Args:
        probabilities: Feature → probability, independent of the other features; or, of exclusive
            features, the weight among them and the plain CVRP, which has 0.5.
        exclusive: Whether an instance has one feature at most (or the pair OTW).
    """
    if not exclusive:
        return [
            math.prod(
                probabilities[feature] if number >> bit & 1 else 1.0 - probabilities[feature]
                for bit, feature in enumerate(FEATURES)
            )
            for number in range(2 ** len(FEATURES))
        ]
    weights = [0.0] * 2 ** len(FEATURES)
    weights[0] = PLAIN_WEIGHT
    for feature, weight in probabilities.items():
        weights[_number(("O", "TW") if feature == "OTW" else (feature,))] = weight
    return weights


def has_weight(weights: Sequence[float], feature: str) -> bool:
    """Whether any variant with the feature can be drawn."""
    bit = FEATURES.index(feature)
    return any(weight > 0 for number, weight in enumerate(weights) if number >> bit & 1)


def draw_features(
    weights: Sequence[float], batch_size: torch.Size, rng: torch.Generator | None
) -> dict[str, Tensor]:
    """Variants of a batch as feature → `[*B, 1]`, True where an instance has it.

    Args:
        weights: Weights of the sixteen variants, see :func:`variant_weights`.
        batch_size: Batch axes `*B`.
        rng: Source of randomness.
    """
    device = None if rng is None else rng.device
    table = torch.tensor(weights, device=device)  # [16]
    draws = torch.multinomial(table, math.prod(batch_size), replacement=True, generator=rng)
    numbers = draws.view(*batch_size, 1)
    return {feature: (numbers >> bit) & 1 == 1 for bit, feature in enumerate(FEATURES)}


def check_variants(td: TensorDictBase) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Which features instances have, by their data.

    Returns:
        Whether there are open routes, time windows, a distance limit, backhauls, and the class of
        the backhauls, `[*B]` each.
    """
    has_open = td["open_route"].squeeze(-1)
    has_windows = (td["time_windows"][..., 1] != math.inf).any(-1)
    has_limit = (td["distance_limit"] != math.inf).squeeze(-1)
    has_backhaul = (td["demand_backhaul"] != 0).any(-1)
    classes = td.get("backhaul_class", None)
    classes = torch.ones_like(td["distance_limit"]) if classes is None else classes
    return has_open, has_windows, has_limit, has_backhaul, classes.squeeze(-1)


def get_variant_names(td: TensorDictBase) -> Any:
    """Names such as CVRP or OVRPBLTW; MB in place of B means mixed backhauls.

    Returns:
        A string for a single instance, (nested) lists of strings for a batch.
    """
    *features, classes = check_variants(td)
    mixed = (classes == 2) & features[-1]
    bits = torch.stack([*features, mixed], -1)  # [*B, 5]
    powers = 2 ** torch.arange(bits.shape[-1], device=bits.device)
    return _name_of((bits * powers).sum(-1).tolist())


def _name_of(number: Any) -> Any:
    """Variant number, or nested lists of them → name."""
    if isinstance(number, list):
        return [_name_of(entry) for entry in number]
    if number == 0:
        return "CVRP"
    o, tw, limit, b, mixed = (number >> bit & 1 for bit in range(5))
    return "O" * o + "VRP" + "M" * mixed + "B" * b + "L" * limit + "TW" * tw


def _number(features: Iterable[str]) -> int:
    """Number of the variant with these features."""
    return sum(1 << FEATURES.index(feature) for feature in features)
