"""Neural Neighborhood Search with n-step PPO (Ma et al., 2022)."""

from __future__ import annotations

from rl4co.core.registry import MODELS
from rl4co.models.rl.improvement_method import ImprovementMethod
from rl4co.models.zoo.n2s.policy import N2SPolicy


@MODELS.register("n2s")
class N2S(ImprovementMethod):
    """N2S with n-step PPO, for pickups and deliveries (`pdp_ruin_repair`).

    Arguments are those of :class:`~rl4co.models.rl.improvement_method.ImprovementMethod`; defaults
    are the settings of the original code for 50 nodes.
    """

    policy_class = N2SPolicy
    supported_envs = ("pdp_ruin_repair",)
    support_reason = "its moves take one order elsewhere"
    defaults = {
        "n_step": 5,
        "T_train": 250,
        "lr_policy": 8e-5,
        "lr_critic": 2e-5,
        "max_grad_norm": 0.15,
        "curriculum": "linear",
        "CL_scalar": 1.5,
        "CL_best": False,
        "batch_size": 600,
    }
