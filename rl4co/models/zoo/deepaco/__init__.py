"""DeepACO (Ye et al., 2023)."""

from rl4co.models.zoo.deepaco.model import (
    SUPPORTED as SUPPORTED,
)
from rl4co.models.zoo.deepaco.model import (
    DeepACO,
)
from rl4co.models.zoo.deepaco.model import (
    ant_rewards as ant_rewards,
)
from rl4co.models.zoo.deepaco.model import (
    resolve_search as resolve_search,
)
from rl4co.models.zoo.deepaco.original import load_original_weights as load_original_weights
from rl4co.models.zoo.deepaco.policy import DeepACOPolicy

__all__ = ["DeepACO", "DeepACOPolicy"]
