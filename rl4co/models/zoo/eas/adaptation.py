"""What efficient active search learns for an instance: a layer, or changes of the embeddings.

All tensors have one row for each copy of each instance. Rows share nothing, so one optimizer that
works element by element (Adam) treats each of them as if it were alone.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Sequence

import torch

from torch import Tensor, nn

from rl4co import kernels
from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.models.nn.attention import PointerAttention
from rl4co.models.zoo.am import DecoderCache

#: Embeddings that can be learnt → field of the decoder's cache.
EMBEDDINGS = {
    "glimpse_key": "glimpse_key",
    "glimpse_val": "glimpse_value",
    "logit_key": "logit_key",
    "glimpse_value": "glimpse_value",
}


@kernels.standard
class ResidualLayer(nn.Module):
    """A separate layer for each row, which changes nothing at first.

    $$h' = h + \\mathrm{ReLU}(h W_1 + b_1) W_2 + b_2, \\qquad W_2 = b_2 = 0$$

    Args:
        num_copies: Copies K of each instance.
        batch: Instances B. All begin with the same numbers, whatever batch they are in.
        dim: Size D of what the layer is applied to.
        rng: Random stream of the first weights.

    Shapes:
        `[K * B, Q, D]` → `[K * B, Q, D]`
    """

    def __init__(self, num_copies: int, batch: int, dim: int, rng: torch.Generator) -> None:
        super().__init__()
        first = torch.empty(num_copies, dim, dim)
        bias = torch.empty(num_copies, 1, dim)
        # Of three-dimensional tensors, as in the original code, hence small.
        nn.init.xavier_uniform_(first, generator=rng)
        nn.init.xavier_uniform_(bias, generator=rng)
        self.first = nn.Parameter(_per_instance(first, batch))  # [K * B, D, D]
        self.first_bias = nn.Parameter(_per_instance(bias, batch))  # [K * B, 1, D]
        self.second = nn.Parameter(torch.zeros_like(self.first))
        self.second_bias = nn.Parameter(torch.zeros_like(self.first_bias))

    def forward(self, heads: Tensor) -> Tensor:
        """Heads after the layer."""
        hidden = torch.baddbmm(self.first_bias, heads, self.first).relu()
        return heads + torch.baddbmm(self.second_bias, hidden, self.second)


class Adaptation(nn.Module):
    """The parameters of a search and how they enter the decoder.

    Args:
        layer: Layer on the heads of the glimpse, or None.
        changes: Embedding (see :data:`EMBEDDINGS`) → tensor of its shape, zero at first.
    """

    def __init__(self, layer: ResidualLayer | None, changes: dict[str, Tensor]) -> None:
        super().__init__()
        self.layer = layer
        self.changes = nn.ParameterDict(changes)

    def cache(self, cache: DecoderCache, pointer: PointerAttention) -> DecoderCache:
        """The cache with changed embeddings."""
        changed = {field: getattr(cache, field) + change for field, change in self.changes.items()}
        adapted = dataclasses.replace(cache, **changed)
        if cache.folded_key is not None:
            adapted.folded_key = pointer.fold(adapted.logit_key)
        return adapted


def make_adaptation(
    cache: DecoderCache,
    num_copies: int,
    with_layer: bool,
    embeddings: Sequence[str],
    rng: torch.Generator,
) -> Adaptation:
    """Fresh parameters for the instances of a cache.

    Args:
        cache: The decoder's cache of all rows `[K * B]`.
        num_copies: Copies K of each instance.
        with_layer: Whether to add a layer.
        embeddings: Names of embeddings to learn; empty: none.
        rng: Random stream of the layer's first weights.
    """
    rows, _, dim = cache.logit_key.shape
    layer = ResidualLayer(num_copies, rows // num_copies, dim, rng) if with_layer else None
    changes = {EMBEDDINGS[name]: torch.zeros_like(_field(cache, name)) for name in embeddings}
    return Adaptation(layer, changes).to(cache.logit_key)


def check_embeddings(names: Sequence[str]) -> None:
    """Rejects embeddings that a decoder does not have."""
    if not names or isinstance(names, str):
        raise ConfigError(f"expected a list of embeddings to learn, got {names!r}")
    for name in names:
        if name not in EMBEDDINGS:
            raise UnknownNameError("embedding of the decoder", name, EMBEDDINGS)


def _field(cache: DecoderCache, name: str) -> Tensor:
    value: Tensor = getattr(cache, EMBEDDINGS[name])
    return value


def _per_instance(values: Tensor, batch: int) -> Tensor:
    """The same values for each instance: `[K, ...]` → `[K * B, ...]`."""
    repeated = values.unsqueeze(1).expand(-1, batch, *values.shape[1:])  # [K, B, ...]
    return repeated.flatten(0, 1).clone()
