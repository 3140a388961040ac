"""DevFormer (Kim et al., 2023)."""

from rl4co.models.zoo.devformer.embeddings import DevFormerContext, DevFormerInitEmbedding
from rl4co.models.zoo.devformer.model import DevFormer
from rl4co.models.zoo.devformer.policy import DevFormerPolicy

__all__ = ["DevFormer", "DevFormerContext", "DevFormerInitEmbedding", "DevFormerPolicy"]
