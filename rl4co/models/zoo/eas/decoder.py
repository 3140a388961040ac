"""A decoder with separate parameters for each instance."""

from __future__ import annotations

import copy

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from rl4co import kernels
from rl4co.core.errors import UnsupportedError
from rl4co.decoding.strategies import DecodingStrategy
from rl4co.models.nn.attention import PointerAttention
from rl4co.models.policies.modules import ConstructiveDecoder
from rl4co.models.zoo.am import AttentionModelDecoder, DecoderCache
from rl4co.models.zoo.eas.adaptation import Adaptation, ResidualLayer


@kernels.standard  # both glimpses are refined, so changes of rank one need not be written out
class RefinedPointer(PointerAttention):
    """A pointer whose heads pass through a layer before they meet the logit keys.

    Args:
        pointer: The pointer whose weights to use.
        layer: The layer, or None to leave the heads as they are.
    """

    def __init__(self, pointer: PointerAttention, layer: ResidualLayer | None) -> None:
        nn.Module.__init__(self)  # no weights of its own
        self.num_heads, self.mask_inner = pointer.num_heads, pointer.mask_inner
        self.project_out, self.sdpa_fn = pointer.project_out, pointer.sdpa_fn
        self.layer = layer

    def fold(self, logit_key: Tensor) -> Tensor | None:
        """None with a layer, which the fused kernel does not have."""
        return super().fold(logit_key) if self.layer is None else None

    def glimpse(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Heads `[R, Q, D]` after the layer."""
        return self._refine(super().glimpse(query, key, value, mask))

    def changed_glimpse(self, *args: Any) -> Tensor:
        """The same for keys and values that change from step to step."""
        return self._refine(super().changed_glimpse(*args))

    def _refine(self, heads: Tensor) -> Tensor:
        if self.layer is None:
            return heads
        # Where keys and values change from query to query, each query is a row: [R * Q, 1, D].
        rows = heads.reshape(len(self.layer.first), -1, heads.shape[-1])  # [R, Q, D]
        return self.layer(rows).view_as(heads)


class AdaptedDecoder(ConstructiveDecoder):
    """A pretrained decoder and the parameters of a search.

    Args:
        decoder: The decoder; not changed.
        adaptation: The parameters.
    """

    def __init__(self, decoder: ConstructiveDecoder, adaptation: Adaptation) -> None:
        super().__init__()
        pointer: Any = decoder.pointer
        self.adaptation = adaptation
        self.pointer = RefinedPointer(pointer, adaptation.layer)
        self.decoder: Any = _with_pointer(decoder, self.pointer)

    @property
    def replay_keys(self) -> tuple[str, ...] | None:
        """Those of the decoder."""
        keys: tuple[str, ...] | None = self.decoder.replay_keys
        return keys

    def prepare(self, hidden: DecoderCache, state: Mapping[str, Tensor]) -> DecoderCache:
        """The decoder's cache (in place of its hidden state), adapted."""
        return self.adaptation.cache(hidden, self.pointer)

    def forward(self, state: Mapping[str, Tensor], cache: DecoderCache) -> Tensor:
        """Logits `[R, Q, N]`."""
        logits: Tensor = self.decoder(state, cache)
        return logits

    def is_fused(self, cache: DecoderCache, strategy: DecodingStrategy) -> bool:
        """As the decoder."""
        fused: bool = self.decoder.is_fused(cache, strategy)
        return fused

    def log_probs(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        """As the decoder."""
        result: tuple[Tensor, Tensor | None] = self.decoder.log_probs(*args, **kwargs)
        return result


def _with_pointer(decoder: ConstructiveDecoder, pointer: PointerAttention) -> Any:
    """The decoder with another pointer; everything else is shared."""
    twin = copy.copy(decoder)
    twin._modules = {**decoder._modules, "pointer": pointer}  # a copy shares the table otherwise
    return twin


def check_decoder(decoder: Any, learns_embeddings: bool) -> None:
    """Rejects decoders whose glimpse or embeddings the search would not find."""
    if type(getattr(decoder, "pointer", None)) is not PointerAttention:
        raise UnsupportedError(
            "expected a decoder with a PointerAttention under `pointer` for efficient active "
            f"search, got {type(decoder).__name__}; use ActiveSearch, which accepts any policy"
        )
    if type(decoder).start_memory is not ConstructiveDecoder.start_memory:
        raise UnsupportedError(
            "expected a decoder whose solutions have no memory for efficient active search, got "
            f"{type(decoder).__name__}; use ActiveSearch, which accepts any policy"
        )
    if decoder.replay_keys is None:
        raise UnsupportedError(
            f"expected a decoder that can replay its steps, got {type(decoder).__name__} with "
            "replay_keys None; name the state keys of its embeddings (state_keys), or use "
            "ActiveSearch"
        )
    if learns_embeddings and type(decoder).prepare is not AttentionModelDecoder.prepare:
        raise UnsupportedError(
            "expected the Attention Model's embeddings to learn, got those of "
            f"{type(decoder).__name__}; use EASLay or ActiveSearch"
        )
