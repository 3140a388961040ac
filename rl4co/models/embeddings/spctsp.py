"""SPCTSP embeddings: those of the PCTSP, which know of prizes what is expected and collected."""

from __future__ import annotations

from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import EmbeddingConfig, EnvEmbeddings
from rl4co.models.embeddings.pctsp import pctsp_embeddings


@EMBEDDINGS.register("spctsp")
def spctsp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the SPCTSP."""
    return pctsp_embeddings(config)
