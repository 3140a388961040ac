"""A decoder with parameters of its own for each instance."""

from __future__ import annotations

import copy

from collections.abc import Mapping
from typing import Any

import torch

from torch import Tensor, nn

from rl4co.core.errors import UnsupportedError
from rl4co.models.nn.attention import PointerAttention, attention
from rl4co.models.policies.modules import ConstructiveDecoder
from rl4co.models.zoo.am import AttentionModelDecoder, DecoderCache
from rl4co.models.zoo.eas.adaptation import Adaptation, ResidualLayer
from rl4co.models.zoo.eas.trace import ScoreWeights, StepTrace


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

    def can_record(self, query: Tensor) -> bool:
        """No: the pointer's own record leaves the layer out."""
        return self.layer is None and super().can_record(query)

    def glimpse(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Heads `[R, Q, D]` after the layer."""
        return self._refine(super().glimpse(query, key, value, mask))

    def changed_glimpse(self, *args: Any) -> Tensor:
        """The same for keys and values that change from step to step."""
        return self._refine(super().changed_glimpse(*args))

    def _refine(self, heads: Tensor) -> Tensor:
        return heads if self.layer is None else self.layer(heads)


class NotingPointer(RefinedPointer):
    """The same pointer for a decoder that does nothing but point, noting its steps.

    The layer's second product and the logit keys are multiplied beforehand, see
    :class:`ScoreWeights`.

    Args:
        pointer: The pointer whose weights to use.
        weights: What turns heads into logits.
        trace: Where to note the heads.
    """

    def __init__(self, pointer: PointerAttention, weights: ScoreWeights, trace: StepTrace) -> None:
        super().__init__(pointer, None)
        self.weights, self.trace = weights, trace

    def can_record(self, query: Tensor) -> bool:
        """No: it has a record of its own."""
        return False

    def forward(self, query: Tensor, *args: Any) -> Tensor:
        """Logits `[R, Q, N]`; arguments as for :meth:`PointerAttention.forward`."""
        key, value, _, _, mask = args
        known = self.weights
        barrier = self.trace.raise_barrier(mask, query.dtype)  # [R, Q, N]
        # Attention functions of others may know Boolean masks only.
        heads = self.glimpse(query, key, value, barrier if self.sdpa_fn is attention else mask)
        self.trace.heads.append(heads)
        if known.bias is None:
            logits = torch.bmm(heads, known.keys.mT)  # [R, Q, N]
        else:
            logits = torch.baddbmm(known.bias, heads, known.keys.mT)
        if known.hidden_keys is None or known.weight is None or known.weight_bias is None:
            return logits
        hidden = torch.baddbmm(known.weight_bias, heads, known.weight).relu_()
        self.trace.hidden.append(hidden)
        return logits.baddbmm_(hidden, known.hidden_keys.mT)


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
        #: Whether nothing that is learnt comes before or into the glimpse.
        self.can_trace = (
            type(decoder).forward is AttentionModelDecoder.forward
            and getattr(decoder, "dynamic_embedding", None) is None
            and adaptation.keeps_glimpse
        )

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

    def annotate(
        self, state: Mapping[str, Tensor], cache: DecoderCache
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits and by-products of the decoder."""
        noted: tuple[Tensor, dict[str, Tensor]] = self.decoder.annotate(state, cache)
        return noted

    def noting(self, trace: StepTrace, weights: ScoreWeights) -> Any:
        """The decoder with a pointer that notes its steps; for use without gradients."""
        return _with_pointer(self.decoder, NotingPointer(self.pointer, weights, trace))

    def score_weights(self, cache: DecoderCache) -> ScoreWeights:
        """What turns heads into logits, differentiable."""
        layer, keys, bias = self.adaptation.layer, cache.folded_key, cache.folded_bias
        if layer is None:
            return ScoreWeights(keys, bias)
        hidden_keys = torch.bmm(keys, layer.second.mT)  # [R, N, D]
        shift = torch.bmm(layer.second_bias, keys.mT)  # [R, 1, N]
        bias = shift if bias is None else shift + bias
        return ScoreWeights(keys, bias, hidden_keys, layer.first, layer.first_bias)


def _with_pointer(decoder: ConstructiveDecoder, pointer: PointerAttention) -> Any:
    """The decoder with another pointer; everything else is shared."""
    twin = copy.copy(decoder)
    twin._modules = {**decoder._modules, "pointer": pointer}  # a copy shares the table otherwise
    return twin


def check_decoder(decoder: Any, learns_embeddings: bool) -> None:
    """Refuses decoders whose glimpse or embeddings the search would not find."""
    if type(getattr(decoder, "pointer", None)) is not PointerAttention:
        raise UnsupportedError(
            "expected a decoder with a PointerAttention under `pointer` for efficient active "
            f"search, got {type(decoder).__name__}; use ActiveSearch, which takes any policy"
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
