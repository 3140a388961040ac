"""DeepACO (Ye et al., 2023)."""

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes
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
from rl4co.models.zoo.deepaco.policy import DeepACOPolicy

if TYPE_CHECKING:
    from rl4co.models.original_weights.deepaco import (
        load_original_weights as load_original_weights,
    )

__all__ = ["DeepACO", "DeepACOPolicy"]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    eager=__all__,
    modules={"load_original_weights": "rl4co.models.original_weights.deepaco"},
)
