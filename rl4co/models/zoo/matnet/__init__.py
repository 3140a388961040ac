"""MatNet: networks for problems that are defined by a matrix (Kwon et al., 2021)."""

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes
from rl4co.models.zoo.matnet.decoder import MatNetDecoder
from rl4co.models.zoo.matnet.encoder import MatNetEncoder
from rl4co.models.zoo.matnet.model import MatNet
from rl4co.models.zoo.matnet.multistage import MultiStageFFSPPolicy
from rl4co.models.zoo.matnet.policy import MatNetPolicy

if TYPE_CHECKING:
    from rl4co.models.original_weights.matnet import (
        load_original_weights as load_original_weights,
    )

__all__ = ["MatNet", "MatNetDecoder", "MatNetEncoder", "MatNetPolicy", "MultiStageFFSPPolicy"]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    eager=__all__,
    modules={"load_original_weights": "rl4co.models.original_weights.matnet"},
)
