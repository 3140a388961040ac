"""MatNet: networks for problems that are given by a matrix (Kwon et al., 2021)."""

from rl4co.models.zoo.matnet.decoder import MatNetDecoder
from rl4co.models.zoo.matnet.encoder import MatNetEncoder
from rl4co.models.zoo.matnet.model import MatNet
from rl4co.models.zoo.matnet.multistage import MultiStageFFSPPolicy
from rl4co.models.zoo.matnet.policy import MatNetPolicy

__all__ = ["MatNet", "MatNetDecoder", "MatNetEncoder", "MatNetPolicy", "MultiStageFFSPPolicy"]
