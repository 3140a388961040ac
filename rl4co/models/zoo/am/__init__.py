"""Attention Model (Kool et al., 2019)."""

from rl4co.models.zoo.am.decoder import AttentionModelDecoder, DecoderCache
from rl4co.models.zoo.am.encoder import AttentionModelEncoder
from rl4co.models.zoo.am.model import AttentionModel
from rl4co.models.zoo.am.original import load_original_weights
from rl4co.models.zoo.am.policy import AttentionModelPolicy

__all__ = [
    "AttentionModel",
    "AttentionModelDecoder",
    "AttentionModelEncoder",
    "AttentionModelPolicy",
    "DecoderCache",
    "load_original_weights",
]
