"""Dual-Aspect Collaborative Transformer with n-step PPO (Ma et al., 2021)."""

from __future__ import annotations

from rl4co.core.registry import MODELS
from rl4co.models.rl.improvement_method import ImprovementMethod
from rl4co.models.zoo.dact.policy import DACTPolicy


@MODELS.register("dact")
class DACT(ImprovementMethod):
    """DACT with n-step PPO, for the TSP with 2-opt (`tsp_kopt` with `k_max=2`).

    Arguments are those of :class:`~rl4co.models.rl.improvement_method.ImprovementMethod`; defaults
    are the settings of the original code for 50 nodes.
    """

    policy_class = DACTPolicy
    supported_envs = ("tsp_kopt",)
    support_reason = "its moves are those of 2-opt"
    defaults = {
        "n_step": 4,
        "T_train": 200,
        "lr_policy": 1e-4,
        "lr_critic": 3e-5,
        "max_grad_norm": 0.2,
        "curriculum": "sigmoid",
        "CL_scalar": 2.0,
        "CL_best": True,
        "batch_size": 600,
    }
