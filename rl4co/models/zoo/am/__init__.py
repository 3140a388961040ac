"""Attention Model (Kool et al., 2019)."""

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes
from rl4co.models.zoo.am.decoder import AttentionModelDecoder, DecoderCache, ProjectingDecoder
from rl4co.models.zoo.am.encoder import AttentionModelEncoder
from rl4co.models.zoo.am.model import AttentionModel
from rl4co.models.zoo.am.policy import AttentionModelPolicy
from rl4co.models.zoo.am.refined import RefinedDecoder

if TYPE_CHECKING:
    from rl4co.models.original_weights.am import (
        load_original_weights as load_original_weights,
    )

__all__ = [
    "AttentionModel",
    "AttentionModelDecoder",
    "AttentionModelEncoder",
    "AttentionModelPolicy",
    "DecoderCache",
    "ProjectingDecoder",
    "RefinedDecoder",
    "load_original_weights",
]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    eager=__all__,
    modules={"load_original_weights": "rl4co.models.original_weights.am"},
)
