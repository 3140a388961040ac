"""NeuOpt with n-step PPO (Ma et al., 2023)."""

from __future__ import annotations

from rl4co.core.registry import MODELS
from rl4co.models.rl.improvement_method import ImprovementMethod
from rl4co.models.zoo.neuopt.policy import NeuOptPolicy


@MODELS.register("neuopt")
class NeuOpt(ImprovementMethod):
    """NeuOpt with n-step PPO, for the TSP with flexible k-opt (`tsp_kopt` with `k_max` above 2).

    Arguments are those of :class:`~rl4co.models.rl.improvement_method.ImprovementMethod`; defaults
    are the settings of the original code for 50 nodes.
    """

    policy_class = NeuOptPolicy
    supported_envs = ("tsp_kopt",)
    support_reason = "its moves are those of flexible k-opt"
    env_params = {"k_max": 4}
    defaults = {
        "n_step": 4,
        "T_train": 200,
        "lr_policy": 8e-5,
        "lr_critic": 2e-5,
        "max_grad_norm": 0.05,
        "curriculum": "linear",
        "CL_scalar": 0.5,
        "CL_best": True,
        "batch_size": 512,
    }
